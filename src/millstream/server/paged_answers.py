"""Pagination of store entries, with cursors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import orjson

from millstream.server.json_codec import from_base64, to_base64
from millstream.server.parameters import MAX_INTEGER, bad_request
from millstream.server.request_routing import HttpRequest
from millstream.server.responses import HttpError, as_json

#: The partition number in cursors of stores that are not partitioned.
NO_PARTITION: Final = -1

_Time = Annotated[int, msgspec.Meta(le=MAX_INTEGER)]
#: The maximum size of a page in bytes of JSON; the last entry may exceed it.
_PAGE_BYTES: Final = 1 << 20
#: Parameters that may differ between pages of one query.
_PAGING_PARAMETERS: Final = frozenset({"cursor", "limit", "stale"})


class PageCursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The position of the last entry of a page. A cursor is only valid for its query.

    `start_ms` and `end_ms` are those of the `StoreEntry`. `seen` is the number of entries already
    returned for this key and these times: a store with duplicates may contain several.
    """

    query_hash: str
    partition: Annotated[int, msgspec.Meta(ge=NO_PARTITION)]
    key: bytes
    start_ms: _Time = 0
    end_ms: _Time = 0
    seen: Annotated[int, msgspec.Meta(ge=1)] = 1

    def encode(self) -> str:
        return to_base64(msgspec.msgpack.encode(self))


def decode_cursor(text: str | None, query_hash: str) -> PageCursor | None:
    if text is None:
        return None
    try:
        cursor = msgspec.msgpack.decode(from_base64(text), type=PageCursor)
    except (ValueError, msgspec.MsgspecError):
        raise bad_request("The cursor is invalid: pass the cursor of the previous page.") from None
    if cursor.query_hash != query_hash:
        raise bad_request("The cursor belongs to another query: omit it to start over.")
    return cursor


class StoreEntry(NamedTuple):
    """An entry of a store.

    The times are the bounds of the window, or the timestamp of the version; 0 if there are none.
    """

    key: bytes
    document: dict[str, Any]
    start_ms: int = 0
    end_ms: int = 0

    def matches(self, cursor: PageCursor) -> bool:
        at = (cursor.key, cursor.start_ms, cursor.end_ms)
        return (self.key, self.start_ms, self.end_ms) == at


#: Returns the entries of a partition (None: of the entire store) in order, starting at the cursor,
#: if any.
EntryReader = Callable[[int | None, PageCursor | None], Iterator[StoreEntry]]


def _after(
    entries: EntryReader, partition: int | None, cursor: PageCursor | None, request: HttpRequest
) -> Iterator[StoreEntry]:
    found = _until_timeout(entries(partition, cursor), request)
    with closing(found):
        if cursor is not None:
            seen = 0
            for entry in found:
                seen += entry.matches(cursor)
                if seen > cursor.seen or not entry.matches(cursor):
                    yield entry
                    break
        yield from found


def _until_timeout(entries: Iterator[StoreEntry], request: HttpRequest) -> Generator[StoreEntry]:
    with closing(entries):  # type: ignore[type-var]
        for entry in entries:
            if request.timed_out.is_set():
                raise HttpError(503, "TIMEOUT", "The request timed out.")
            yield entry


def read_page(
    entries: EntryReader, partitions: Sequence[int] | None, request: HttpRequest
) -> dict[str, Any]:
    """Return the requested page, with a cursor if there are more entries.

    `partitions` is None if the store is not partitioned. The request must have the parameters
    `limit` and `cursor`.
    """
    query_hash = _query_hash(request)
    cursor = decode_cursor(request.values["cursor"], query_hash)
    limit: int = request.values["limit"]
    page: list[orjson.Fragment] = []
    size = 0
    last: PageCursor | None = None
    for partition in [NO_PARTITION] if partitions is None else sorted(partitions):
        after = cursor
        if cursor is not None and partition != cursor.partition:
            if partition < cursor.partition:
                continue
            after = None
        with closing(  # type: ignore[type-var]
            _after(entries, None if partition == NO_PARTITION else partition, after, request)
        ) as found:
            for entry in found:
                if len(page) >= limit or size >= _PAGE_BYTES:
                    return _page(page, last)
                place = {} if partition == NO_PARTITION else {"partition": partition}
                written = as_json(entry.document | place)
                page.append(orjson.Fragment(written))
                size += len(written)
                last = _cursor_at(entry, partition, query_hash, last or after)
    return _page(page, None)


def _page(entries: list[orjson.Fragment], last: PageCursor | None) -> dict[str, Any]:
    return {"entries": entries, "cursor": None if last is None else last.encode()}


def _cursor_at(
    entry: StoreEntry, partition: int, query_hash: str, before: PageCursor | None
) -> PageCursor:
    seen = 1
    if before is not None and before.partition == partition and entry.matches(before):
        seen = before.seen + 1
    return PageCursor(query_hash, partition, entry.key, entry.start_ms, entry.end_ms, seen)


def _query_hash(request: HttpRequest) -> str:
    given = sorted(
        (name, each) for name, each in request.values.items() if name not in _PAGING_PARAMETERS
    )
    return hashlib.sha256(repr(given).encode()).hexdigest()[:8]
