"""The Python blocks of pages: finds, classifies and runs them."""

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

#: A marker before a block that excludes it from the blocks run together with its page.
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>not run|on a broker|file: [^\n]+) -->\n+)?"
    r"^```(?P<kind>python|pycon)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """A block of Python in a page.

    Attributes:
        kind: `python`, which is executed, or `pycon`, whose output is compared.
        line: the first line of its code.
        mark: the marker before it; empty for none.
    """

    code: str
    kind: str
    line: int
    mark: str = ""


def name(path: Path) -> str:
    """The path of a page in the checkout."""
    return str(path.relative_to(ROOT))


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, from top to bottom."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("code")) + 1
        yield Block(found["code"], found["kind"], line, found["mark"] or "")


def execute(
    block: Block, page: Path, namespace: dict[str, Any], fixtures: Mapping[str, Any] = {}
) -> None:
    """Execute a block of a page in the page's namespace.

    Functions named `test_...` are called if `fixtures` has all their arguments.

    Args:
        fixtures: arguments of such functions by name.
    """
    if block.kind == "pycon":
        test = doctest.DocTestParser().get_doctest(
            block.code, namespace, name(page), str(page), block.line - 1
        )
        compare(test)
        namespace.update(test.globs)
        return
    # Preceding empty lines make tracebacks show the page's line numbers.
    code = compile("\n" * (block.line - 1) + block.code, str(page), "exec", dont_inherit=True)
    exec(code, namespace)
    for statement in ast.parse(block.code).body:
        if isinstance(statement, ast.FunctionDef) and statement.name.startswith("test_"):
            function = namespace[statement.name]
            needed = inspect.signature(function).parameters
            if needed.keys() <= fixtures.keys():
                function(**{each: fixtures[each] for each in needed})
