"""The blocks of Python in pages: found, told apart, and run."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from support.doc_examples import compare

ROOT = Path(__file__).parents[3]

#: What may stand before a block, and keeps it from being run with the others of its page.
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>not run|on a broker|file: [^\n]+) -->\n+)?"
    r"^```(?P<kind>python|pycon)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """A block of Python in a page.

    Attributes:
        code: what is in it.
        kind: `python`, which is executed, or `pycon`, which is compared with what it shows.
        line: on which its code begins.
        mark: what stands before it; empty for nothing.
    """

    code: str
    kind: str
    line: int
    mark: str = ""


def name(path: Path) -> str:
    """A page by its place in the checkout."""
    return str(path.relative_to(ROOT))


def blocks(page: Path) -> Iterator[Block]:
    """Those of a page, from top to bottom."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("code")) + 1
        yield Block(found["code"], found["kind"], line, found["mark"] or "")


def execute(
    block: Block, page: Path, namespace: dict[str, Any], fixtures: Mapping[str, Any] = {}
) -> None:
    """Runs a block of a page in the page's namespace.

    Functions that are called `test_...` are called if they take no other arguments than these.

    Args:
        block: what to run.
        page: where it is, for tracebacks.
        namespace: of the page.
        fixtures: arguments of such functions by name.
    """
    if block.kind == "pycon":
        test = doctest.DocTestParser().get_doctest(
            block.code, namespace, name(page), str(page), block.line - 1
        )
        compare(test)
        namespace.update(test.globs)
        return
    # The lines before it, so that tracebacks name the line of the page.
    code = compile("\n" * (block.line - 1) + block.code, str(page), "exec", dont_inherit=True)
    exec(code, namespace)
    for statement in ast.parse(block.code).body:
        if isinstance(statement, ast.FunctionDef) and statement.name.startswith("test_"):
            function = namespace[statement.name]
            wanted = inspect.signature(function).parameters
            if wanted.keys() <= fixtures.keys():
                function(**{each: fixtures[each] for each in wanted})
