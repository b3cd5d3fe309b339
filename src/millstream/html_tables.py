"""HTML tables of results, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import Final

#: Only the first rows of a table, and the first characters of a cell, are shown.
MAX_ROWS: Final = 50
MAX_CELL: Final = 200


def html_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table of escaped texts.

    A table with more than `MAX_ROWS` rows ends with an ellipsis, and the other rows are not read.
    """
    shown = list(islice(rows, MAX_ROWS + 1))
    lines = [
        f"<table><caption>{escape(title)}</caption>",
        _row("th", heads) if heads else "",
        *(_row("td", row) for row in shown[:MAX_ROWS]),
        _row("td", ["…"] * len(shown[0])) if len(shown) > MAX_ROWS else "",
        "</table>",
    ]
    return "\n".join(line for line in lines if line)


def mime_bundle(text: str, html: str) -> dict[str, str]:
    """Return the result of `_repr_mimebundle_`, which IPython calls."""
    return {"text/plain": text, "text/html": html}


def _row(tag: str, cells: Sequence[str]) -> str:
    shown = (text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}…" for text in cells)
    return "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in shown) + "</tr>"
