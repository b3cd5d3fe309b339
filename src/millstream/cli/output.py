"""The output of commands: tables or JSON on stdout, messages on stderr."""

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

#: The width if the output is not a terminal: nothing is cut off.
_UNLIMITED_WIDTH: Final = 10_000

#: Styles of cells and messages.
GOOD: Final = "green"
WARNING: Final = "yellow"
BAD: Final = "bold red"
FAINT: Final = "dim"

#: Characters that control a terminal or change the direction of text.
_UNSAFE_CHARACTERS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

Cell = str | int | float | None | Text


def console(*, to_stderr: bool = False) -> Console:
    """Return a console that limits lines to the terminal's width, but not in files."""
    file = sys.stderr if to_stderr else sys.stdout
    width = None if file.isatty() else _UNLIMITED_WIDTH
    return Console(file=file, width=width, highlight=False, emoji=False, markup=False)


def printable(text: str, *, lines: bool = False) -> str:
    """Escape the control characters in a text for a terminal.

    Keys, values and names come from topics. They must not change the clipboard or the terminal's
    title, or overwrite other output.
    """

    def escaped(found: re.Match[str]) -> str:
        if lines and found.group() == "\n":
            return "\n"
        return found.group().encode("unicode_escape").decode()

    return _UNSAFE_CHARACTERS.sub(escaped, text)


def json_text(data: Any, *, indented: bool = False) -> str:
    """Return a document as JSON, with control characters escaped."""
    text = orjson.dumps(data, option=orjson.OPT_INDENT_2 if indented else None).decode()
    return _UNSAFE_CHARACTERS.sub(
        lambda found: "\n" if found.group() == "\n" else f"\\u{ord(found.group()):04x}", text
    )


def print_json(data: Any) -> None:
    """Write a document to stdout as indented JSON."""
    click.echo(json_text(data, indented=True))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, title: str | None = None
) -> None:
    """Write a table to stdout.

    Columns of numbers are right-aligned. None is shown as a dash.
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
    return Text(printable(text), style=style)


def print_message(text: str, style: str | None = None) -> None:
    """Write a message to stderr."""
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
