"""What commands write: results to stdout, as tables for people or JSON for programs, and whatever
else is to be said to stderr."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click
import orjson
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

#: Where the output is no terminal, nothing is cut off.
_ENDLESS: Final = 10_000

#: How rows are marked; the word before the colon of a cell's style.
GOOD: Final = "green"
WARNING: Final = "yellow"
BAD: Final = "bold red"
FAINT: Final = "dim"

#: What a terminal obeys, or what turns the order of a line around, instead of being shown.
_OBEYED: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

Cell = str | int | float | None | Text


def console(*, to_stderr: bool = False) -> Console:
    """A console that writes as wide as it is told: cut to a terminal, uncut to a file."""
    file = sys.stderr if to_stderr else sys.stdout
    width = None if file.isatty() else _ENDLESS
    return Console(file=file, width=width, highlight=False, emoji=False, markup=False)


def printable(text: str, *, lines: bool = False) -> str:
    """A text as a terminal may be given it: what it would obey is written as an escape.

    Keys, values and names come from whoever writes to a topic, and must not set a clipboard or a
    title, or draw over what else is shown.

    Args:
        text: from wherever.
        lines: whether it may have several.
    """

    def escaped(found: re.Match[str]) -> str:
        if lines and found.group() == "\n":
            return "\n"
        return found.group().encode("unicode_escape").decode()

    return _OBEYED.sub(escaped, text)


def json_text(data: Any, *, indented: bool = False) -> str:
    """A document as JSON, with everything escaped that a terminal would obey."""
    text = orjson.dumps(data, option=orjson.OPT_INDENT_2 if indented else None).decode()
    return _OBEYED.sub(
        lambda found: "\n" if found.group() == "\n" else f"\\u{ord(found.group()):04x}", text
    )


def print_json(data: Any) -> None:
    """Write a document to stdout, in two-space indentation, keys in their order."""
    click.echo(json_text(data, indented=True))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, title: str | None = None
) -> None:
    """Write a table to stdout. Columns of numbers are aligned to the right.

    Args:
        columns: their headings.
        rows: the cells; None is shown as a dash.
        title: a line above it.
    """
    listed = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for position, heading in enumerate(columns):
        cells = [row[position] for row in listed]
        numbers = any(isinstance(cell, int | float) for cell in cells)
        table.add_column(
            printable(heading), justify="right" if numbers else "left", overflow="fold"
        )
    for row in listed:
        table.add_row(*map(_shown, row))
    target = console()
    with target.capture() as written:
        target.print(table)
    lines = [line.rstrip() for line in written.get().splitlines()]
    click.echo("\n".join(lines).strip("\n"))


def styled(text: str, style: str) -> Text:
    """A cell in a colour."""
    return Text(printable(text), style=style)


def say(text: str, style: str | None = None) -> None:
    """Write a line for the reader to stderr."""
    console(to_stderr=True).print(
        Text(printable(text, lines=True), style=style or ""), soft_wrap=True
    )


def _shown(cell: Cell) -> Text | str:
    if cell is None:
        return Text("–", style=FAINT)
    if isinstance(cell, Text):
        return cell
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return Text(printable(str(cell)))
    return f"{cell:,}"
