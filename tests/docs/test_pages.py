"""The examples in the pages run, and their links work.

`python` blocks are executed, and the results of `pycon` blocks are compared, all blocks of a page
in one namespace, from top to bottom. A marker before a block names another place that runs it:
`<!-- on a broker -->` test_on_a_broker.py, `<!-- file: NAME -->` a test that follows the page step
by step; `<!-- not run -->` blocks are not run, or run as a separate file. Marked blocks are only
compiled here. Blocks create applications without starting them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.docs.blocks import ROOT, Block, blocks, execute, name

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
#: Folders with further pages.
FOLDERS = ("benchmarks", "deploy", "examples", "speedups", "tests", ".github")
LINKING = sorted(
    {
        *PAGES,
        *ROOT.glob("*.md"),
        *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md")),
    }
)

FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


@pytest.mark.usefixtures("unstarted")
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_examples_of_the_pages_run(page: Path) -> None:
    """All examples work and show their real results."""
    namespace: dict[str, Any] = {"__name__": "docs"}
    for block in blocks(page):
        if not block.mark:
            execute(block, page, namespace)
        elif block.kind == "python":
            compile(block.code, f"{page}:{block.line}", "exec")


def test_only_comparisons_and_recipes_are_not_run() -> None:
    """Comparisons need other libraries; tests run the recipes of the cookbook as files."""
    not_run = {name(page) for page in PAGES for block in blocks(page) if block.mark == "not run"}
    excluded = ("docs/coming-from/", "docs/cookbook/")
    assert {page for page in not_run if not page.startswith(excluded)} == set()


def test_wrong_examples_are_detected() -> None:
    """Each kind of block can fail: by an exception, a wrong result, or a failing test."""
    wrong = (
        Block("1 / 0\n", "python", 1),
        Block(">>> 1 + 1\n3\n", "pycon", 1),
        Block("def test_sum():\n    assert 1 + 1 == 3\n", "python", 1),
    )
    for block in wrong:
        with pytest.raises((ArithmeticError, AssertionError)):
            execute(block, ROOT / "README.md", {})


# Links and completeness.


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub generates for a page's headings."""
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
def test_links_are_valid(page: Path) -> None:
    """Renamed pages and headings must not leave broken links."""
    assert broken_links(page) == []


def test_broken_links_are_detected(tmp_path: Path) -> None:
    """Missing files and headings are detected; links in code and to the web are ignored."""
    page = DOCS / "build" / "dsl.md"
    assert "nowhere" not in anchors(page)
    copy = tmp_path / "page.md"
    copy.write_text("# A `b` c\n[x](gone.md) [y](#nowhere) [z](https://a.b)\n```\n[x](q.md)\n```\n")
    assert anchors(copy) == {"a-b-c"}
    assert broken_links(copy) == ["gone.md", "#nowhere"]
