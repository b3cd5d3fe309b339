"""The pages say what is: their examples run, and their links lead somewhere.

Blocks marked `python` are executed and blocks marked `pycon` are compared with what they show, all
blocks of a page in one namespace, from top to bottom. What stands before a block says where else it
is run: `<!-- on a broker -->` in test_on_a_broker.py, `<!-- file: NAME -->` by who follows the page
step by step, `<!-- not run -->` nowhere, or as a file of its own. Those are only compiled.
Applications are made in the blocks, not started.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.docs.blocks import ROOT, Block, blocks, execute, name

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

FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


@pytest.mark.usefixtures("unstarted")
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_examples_of_the_pages_run(page: Path) -> None:
    """An example that does not work, or shows what is not so, is worse than none."""
    namespace: dict[str, Any] = {"__name__": "docs"}
    for block in blocks(page):
        if not block.mark:
            execute(block, page, namespace)
        elif block.kind == "python":
            compile(block.code, f"{page}:{block.line}", "exec")


def test_what_is_not_run_needs_what_is_not_here() -> None:
    """Other libraries, beside ours; the recipes of the cookbook are files that tests run."""
    unrun = {name(page) for page in PAGES for block in blocks(page) if block.mark == "not run"}
    elsewhere = ("docs/coming-from/", "docs/cookbook/")
    assert {page for page in unrun if not page.startswith(elsewhere)} == set()


def test_a_wrong_example_is_noticed() -> None:
    """Each kind of block fails when it is wrong: an exception, a wrong result, a failing test."""
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
