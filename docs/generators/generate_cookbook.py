"""Writes the pages of docs/cookbook, one for each folder of recipes in examples/cookbook.

    python docs/generators/generate_cookbook.py            # rewrite the pages
    python docs/generators/generate_cookbook.py --check    # exit code 1 if they are out of date

A recipe is a self-contained file with a description, a topology and tests. Its docstring becomes
the text of its section, and the rest becomes the code block.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from generated import write_or_check

DOCS = Path(__file__).parents[1]
RECIPES = DOCS.parent / "examples" / "cookbook"
PAGES = DOCS / "cookbook"

#: The folders in the order of the cookbook, with the title and the introduction of each page.
CHAPTERS = {
    "windows": ("Time and windows", "Group records by time, and handle late records."),
    "joins": (
        "Joins and enrichment",
        "Join by key, by time and by foreign key.",
    ),
    "state": ("State", "Control what stores keep, for how long, and for which tenant or person."),
    "calls": ("External calls", "Call services, models and databases."),
    "failures": ("Failures", "Handle invalid records, failed work and changing formats."),
    "operating": ("Operations", "Deploy new versions, scale, test, measure and migrate."),
}

_INTRODUCTION = """# Cookbook

Each of the {recipes} recipes is a single file in [`examples/cookbook`](../../examples/cookbook),
with its topology and its tests: copy it, adapt the names, and keep the tests. Run the tests of a
recipe with `python -m pytest examples/cookbook/windows/sessions.py`, or those of all recipes with
`make test`.
"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A file of the cookbook.

    Attributes:
        title: the first paragraph of the docstring.
        text: the docstring without the title.
        code: the source after the docstring.
    """

    path: Path
    title: str
    text: str
    code: str

    @property
    def about(self) -> str:
        """The part of the title after its colon."""
        return self.title.partition(": ")[2].rstrip(".") or self.title

    @property
    def anchor(self) -> str:
        """The anchor of the heading."""
        kept = re.sub(r"[^\w\- ]", "", self.title.lower())
        return kept.replace(" ", "-")


def read_recipe(path: Path) -> Recipe:
    """Read a recipe.

    Raises:
        ValueError: the recipe has no docstring, or its title is not a sentence.
    """
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    doc = ast.get_docstring(tree)
    if doc is None:
        raise ValueError(f"{path} needs a docstring, which is the text of the recipe")
    title, _, text = doc.partition("\n\n")
    if not title.endswith("."):
        raise ValueError(f"the title of {path} does not end with a full stop: {title!r}")
    lines = source.splitlines()
    first = tree.body[0]
    code = "\n".join(lines[first.end_lineno :]).strip("\n")
    return Recipe(path, title.rstrip("."), text.strip(), code)


def recipes(chapter: str) -> list[Recipe]:
    """Return the recipes of a folder, by name."""
    return [read_recipe(path) for path in sorted((RECIPES / chapter).glob("*.py"))]


def pages() -> Iterator[tuple[Path, str]]:
    """Yield the pages with their expected texts."""
    found = {chapter: recipes(chapter) for chapter in CHAPTERS}
    yield PAGES / "README.md", _contents(found)
    for chapter, chapter_recipes in found.items():
        yield PAGES / f"{chapter}.md", _page(chapter, chapter_recipes)


def _contents(found: dict[str, list[Recipe]]) -> str:
    text = [_INTRODUCTION.format(recipes=sum(map(len, found.values())))]
    for chapter, chapter_recipes in found.items():
        title, about = CHAPTERS[chapter]
        text.append(f"\n## [{title}]({chapter}.md)\n\n{about}\n\n")
        text += [f"- [{each.title}]({chapter}.md#{each.anchor})\n" for each in chapter_recipes]
    return "".join(text)


def _page(chapter: str, chapter_recipes: list[Recipe]) -> str:
    title, about = CHAPTERS[chapter]
    text = [f"# {title}\n\n{about}\n"]
    for each in chapter_recipes:
        link = f"../../{each.path.relative_to(DOCS.parent)}"
        # The recipe's own tests run the code. Make the links relative to the page.
        body = each.text.replace("](../../../docs/", "](../").replace(
            "](../../", "](../../examples/"
        )
        text.append(f"\n## {each.title}\n\n{body}\n\n[`{each.path.name}`]({link})\n\n")
        text.append(f"<!-- not run -->\n```python\n{each.code}\n```\n")
    return "".join(text)


if __name__ == "__main__":
    raise SystemExit(write_or_check(__doc__, pages(), sys.argv[1:]))
