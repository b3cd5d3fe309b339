"""Answers that come in pages, each from where the one before ended."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple

import orjson

from millstream.server.cursors import WHOLE, Cursor, read_cursor
from millstream.server.http_error import HttpError
from millstream.server.json_response import as_json
from millstream.server.routing import Asked

#: A page ends with the entry that makes it larger than this, in bytes of JSON.
_PAGE_BYTES: Final = 1 << 20
#: What does not change what is asked.
_NOT_ASKED: Final = frozenset({"cursor", "limit", "stale"})


class Entry(NamedTuple):
    """Something that a store has.

    Args:
        key: the serialized key.
        document: as it is told.
        start_ms: of its window, or of its version; 0 if it has none.
        end_ms: of its window; 0 if it has none.
    """

    key: bytes
    document: dict[str, Any]
    start_ms: int = 0
    end_ms: int = 0

    def is_at(self, cursor: Cursor) -> bool:
        """Whether it is the one that a page ended with, or one of the same key and window."""
        at = (cursor.key, cursor.start_ms, cursor.end_ms)
        return (self.key, self.start_ms, self.end_ms) == at


#: Gives what a partition has, or the whole store for None, in its order: all of it, or what is at
#: the cursor or behind.
Entries = Callable[[int | None, Cursor | None], Iterator[Entry]]


def _after(
    entries: Entries, partition: int | None, cursor: Cursor | None, asked: Asked
) -> Iterator[Entry]:
    """What a partition has behind the cursor."""
    found = _while_wanted(entries(partition, cursor), asked)
    with closing(found):
        if cursor is not None:
            seen = 0
            for entry in found:
                seen += entry.is_at(cursor)
                if seen > cursor.seen or not entry.is_at(cursor):
                    yield entry
                    break
        yield from found


def _while_wanted(entries: Iterator[Entry], asked: Asked) -> Generator[Entry]:
    with closing(entries):  # type: ignore[type-var]
        for entry in entries:
            if asked.given_up.is_set():
                raise HttpError(503, "TIMEOUT", "Nobody waits for this page any more.")
            yield entry


def page_of(entries: Entries, partitions: Sequence[int] | None, asked: Asked) -> dict[str, Any]:
    """The page that is asked for, and its cursor if there may be more.

    Args:
        entries: all there are.
        partitions: of the store; None for one that has none.
        asked: with `limit` and `cursor`.
    """
    question = _question(asked)
    cursor = read_cursor(asked.values["cursor"], question)
    limit: int = asked.values["limit"]
    page: list[orjson.Fragment] = []
    size = 0
    last: Cursor | None = None
    for partition in [WHOLE] if partitions is None else sorted(partitions):
        after = cursor
        if cursor is not None and partition != cursor.partition:
            if partition < cursor.partition:
                continue
            after = None
        with closing(  # type: ignore[type-var]
            _after(entries, None if partition == WHOLE else partition, after, asked)
        ) as found:
            for entry in found:
                if len(page) >= limit or size >= _PAGE_BYTES:
                    return _page(page, last)
                written = as_json(entry.document | _place(partition))
                page.append(orjson.Fragment(written))
                size += len(written)
                last = _at(entry, partition, question, last or after)
    return _page(page, None)


def _page(entries: list[orjson.Fragment], last: Cursor | None) -> dict[str, Any]:
    return {"entries": entries, "cursor": None if last is None else last.written()}


def _place(partition: int) -> dict[str, Any]:
    return {} if partition == WHOLE else {"partition": partition}


def _at(entry: Entry, partition: int, question: str, before: Cursor | None) -> Cursor:
    seen = 1
    if before is not None and before.partition == partition and entry.is_at(before):
        seen = before.seen + 1
    return Cursor(question, partition, entry.key, entry.start_ms, entry.end_ms, seen)


def _question(asked: Asked) -> str:
    """What is asked, in short."""
    given = sorted((name, each) for name, each in asked.values.items() if name not in _NOT_ASKED)
    return hashlib.sha256(repr(given).encode()).hexdigest()[:8]
