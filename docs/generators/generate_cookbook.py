"""Writes the pages of docs/cookbook, each made of the recipes in a folder of examples/cookbook.

    python docs/generators/generate_cookbook.py            # rewrite the pages
    python docs/generators/generate_cookbook.py --check    # exit code 1 if they are not up to date

A recipe is a file that stands by itself: what it is about, the topology, and tests that show it at
work. Its docstring becomes the text of its section, and the rest its code.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from generated import written

DOCS = Path(__file__).parents[1]
RECIPES = DOCS.parent / "examples" / "cookbook"
PAGES = DOCS / "cookbook"

#: The folders in the order of the cookbook: what the page is called, and what it says first.
ROOMS = {
    "windows": ("Time and windows", "What belongs together by time, and what comes late."),
    "joins": (
        "Joins and enrichment",
        "Records that meet others: by key, by time, by a key within.",
    ),
    "state": ("State", "What an application remembers, for how long, and of whom."),
    "calls": ("Calls", "Functions that wait, models, databases."),
    "failures": ("Failures", "Records that are wrong, work that fails, formats that change."),
    "operating": ("Operating", "New versions, more load, tests, metrics, moving house."),
}

_INTRODUCTION = """# Cookbook

{recipes} recipes. Each is a file of its own in [`examples/cookbook`](../../examples/cookbook): copy
it, rename what is in it, and keep its tests. `python -m pytest
examples/cookbook/windows/sessions.py` runs those of one; `make test` runs all.
"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A file of the cookbook.

    Attributes:
        path: where it is.
        title: what it is about, in a few words.
        text: its docstring without the title.
        code: what comes behind the docstring.
    """

    path: Path
    title: str
    text: str
    code: str

    @property
    def about(self) -> str:
        """What the title says behind its colon."""
        return self.title.partition(": ")[2].rstrip(".") or self.title

    @property
    def anchor(self) -> str:
        """What a heading of the title is called in links."""
        kept = re.sub(r"[^\w\- ]", "", self.title.lower())
        return kept.replace(" ", "-")


def recipe(path: Path) -> Recipe:
    """Reads a recipe.

    Raises:
        ValueError: it has no docstring, or its title is no sentence.
    """
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    doc = ast.get_docstring(tree)
    if doc is None:
        raise ValueError(f"{path} has no docstring, which would be its text")
    title, _, text = doc.partition("\n\n")
    if not title.endswith("."):
        raise ValueError(f"the title of {path} does not end with a full stop: {title!r}")
    lines = source.splitlines()
    first = tree.body[0]
    code = "\n".join(lines[first.end_lineno :]).strip("\n")
    return Recipe(path, title.rstrip("."), text.strip(), code)


def recipes(room: str) -> list[Recipe]:
    """Those of a folder, by name."""
    return [recipe(path) for path in sorted((RECIPES / room).glob("*.py"))]


def pages() -> Iterator[tuple[Path, str]]:
    """The pages and what they should say."""
    found = {room: recipes(room) for room in ROOMS}
    yield PAGES / "README.md", _contents(found)
    for room, of_room in found.items():
        yield PAGES / f"{room}.md", _page(room, of_room)


def _contents(found: dict[str, list[Recipe]]) -> str:
    text = [_INTRODUCTION.format(recipes=sum(map(len, found.values())))]
    for room, of_room in found.items():
        title, about = ROOMS[room]
        text.append(f"\n## [{title}]({room}.md)\n\n{about}\n\n")
        text += [f"- [{each.title}]({room}.md#{each.anchor})\n" for each in of_room]
    return "".join(text)


def _page(room: str, of_room: list[Recipe]) -> str:
    title, about = ROOMS[room]
    text = [f"# {title}\n\n{about}\n"]
    for each in of_room:
        link = f"../../{each.path.relative_to(DOCS.parent)}"
        # The recipe's own tests run it; what it links to is told from the page, not from the file.
        body = each.text.replace("](../../../docs/", "](../").replace(
            "](../../", "](../../examples/"
        )
        text.append(f"\n## {each.title}\n\n{body}\n\n[`{each.path.name}`]({link})\n\n")
        text.append(f"<!-- not run -->\n```python\n{each.code}\n```\n")
    return "".join(text)


if __name__ == "__main__":
    raise SystemExit(written(__doc__, pages(), sys.argv[1:]))
