"""Writes the table of all errors in docs/build/errors.md from their docstrings and fields.

    python docs/generators/generate_errors.py            # rewrite the table
    python docs/generators/generate_errors.py --check    # exit code 1 if it is out of date

The table is between `<!-- table: errors -->` and `<!-- end -->`; the other text is not generated.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from generated import write_or_check

from millstream import errors
from millstream.errors import StreamsError

PAGE = Path(__file__).parents[1] / "build" / "errors.md"
_MARKED = re.compile(r"(<!-- table: errors -->\n).*?(<!-- end -->)", re.DOTALL)


def classes() -> Iterator[type[StreamsError]]:
    """Yield all errors in the order of the source, base classes first."""
    for value in vars(errors).values():
        if inspect.isclass(value) and issubclass(value, StreamsError):
            yield value


def own_fields(error: type[StreamsError]) -> list[str]:
    """Return the fields that an error adds to those of its base class."""
    if error is StreamsError:
        return []
    base = inspect.signature(error.__bases__[0]).parameters
    return [name for name in inspect.signature(error).parameters if name not in base]


def table() -> str:
    """Return the table with a row for each error."""
    rows = ["| Error | Base class | Meaning | Own attributes | Retry |\n|---|---|---|---|---|\n"]
    for error in classes():
        means = (inspect.getdoc(error) or "").partition("\n\n")[0].replace("\n", " ")
        fields = ", ".join(f"`{name}`" for name in own_fields(error))
        again = "may succeed" if error.retriable else ""
        base = error.__bases__[0].__name__
        rows.append(f"| `{error.__name__}` | `{base}` | {means} | {fields} | {again} |\n")
    return "".join(rows)


def page(text: str) -> str:
    """Return a page with the table updated.

    Raises:
        ValueError: the page does not contain the markers.
    """
    if not _MARKED.search(text):
        raise ValueError(f"{PAGE.name} has no '<!-- table: errors -->' and '<!-- end -->'")
    return _MARKED.sub(lambda found: f"{found[1]}\n{table()}\n{found[2]}", text)


if __name__ == "__main__":
    raise SystemExit(
        write_or_check(__doc__, [(PAGE, page(PAGE.read_text(encoding="utf-8")))], sys.argv[1:])
    )
