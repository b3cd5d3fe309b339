"""The pages say what is: their examples run, and their links lead somewhere.

Blocks marked `python` are executed and blocks marked `pycon` are compared with what they show, all
blocks of a page in one namespace, from top to bottom. Functions of a block that are called
`test_...` and take no arguments are called. `<!-- not run -->` before a block keeps it from being
executed, for example because it needs a broker, and so does `<!-- file: NAME -->`, whose test
follows the page step by step; both must be valid Python all the same. Applications are made in the
blocks, not started.
"""

from __future__ import annotations

import ast
import doctest
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.doc_examples import compare

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
#: Folders whose pages are read, and those in them.
READ = ("benchmarks", "deploy", "examples", "speedups", "tests", ".github")
LINKING = sorted(
    {
        *PAGES,
        *ROOT.glob("*.md"),
        *(page for folder in READ for page in (ROOT / folder).rglob("*.md")),
    }
)

BLOCK = re.compile(
    r"^(<!-- (?:not run|file: [^\n]+) -->\n+)?^```(python|pycon)\n(.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


class Block(NamedTuple):
    """A block of Python in a page, and the line on which its code begins."""

    code: str
    kind: str
    line: int
    runs: bool


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start(3)) + 1
        yield Block(found[3], found[2], line, runs=found[1] is None)


def execute(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    """Runs a block of a page in the page's namespace."""
    if block.kind == "pycon":
        test = doctest.DocTestParser().get_doctest(
            block.code, namespace, name(page), str(page), block.line - 1
        )
        compare(test)
        namespace.update(test.globs)
        return
    # The lines before it, so that tracebacks name the line of the page.
    code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
    exec(code, namespace)
    for statement in ast.parse(block.code).body:
        if isinstance(statement, ast.FunctionDef) and statement.name.startswith("test_"):
            function = namespace[statement.name]
            if not inspect.signature(function).parameters:
                function()


@pytest.mark.usefixtures("unstarted")
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_examples_of_the_pages_run(page: Path) -> None:
    """An example that does not work, or shows what is not so, is worse than none."""
    namespace: dict[str, Any] = {"__name__": "docs"}
    for block in blocks(page):
        if block.runs:
            execute(block, page, namespace)
        elif block.kind == "python":
            compile(block.code, f"{page}:{block.line}", "exec")


def test_a_wrong_example_is_noticed() -> None:
    """Each kind of block fails when it is wrong: an exception, a wrong result, a failing test."""
    wrong = (
        Block("1 / 0\n", "python", 1, True),
        Block(">>> 1 + 1\n3\n", "pycon", 1, True),
        Block("def test_sum():\n    assert 1 + 1 == 3\n", "python", 1, True),
    )
    for block in wrong:
        with pytest.raises((ArithmeticError, AssertionError)):
            execute(block, ROOT / "README.md", {})


# Links and completeness.


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    slugs: set[str] = set()
    for heading in HEADING.findall(text):
        plain = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        slugs.add(plain.replace(" ", "-"))
    return slugs


def broken_links(page: Path) -> list[str]:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        found = target.exists() and (not anchor or anchor in anchors(target))
        if not found or not target.is_relative_to(ROOT):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", LINKING, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    """A renamed page or heading must not leave dead links behind."""
    assert broken_links(page) == []


def test_dead_links_are_noticed(tmp_path: Path) -> None:
    """A missing file and a missing heading both count; code and the web do not."""
    page = DOCS / "build" / "dsl.md"
    assert "nowhere" not in anchors(page)
    copy = tmp_path / "page.md"
    copy.write_text("# A `b` c\n[x](gone.md) [y](#nowhere) [z](https://a.b)\n```\n[x](q.md)\n```\n")
    assert anchors(copy) == {"a-b-c"}
    assert broken_links(copy) == ["gone.md", "#nowhere"]
