"""Records with their timestamp in a header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millstream.record import Headers
from millstream.runtime.task.queues.raw_records import with_header_timestamps


class Raw(NamedTuple):
    """Records as returned by a poll."""

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    offsets: list[int]
    headers: Sequence[Headers] | None
    leader_epoch: int | None = 4


def raw(*headers: Headers) -> Raw:
    count = len(headers)
    offsets = list(range(count))
    return Raw([b"k"] * count, [b"v"] * count, [1_000 + n for n in offsets], offsets, headers)


def time_header(milliseconds: int) -> tuple[str, bytes]:
    return ("millstream.timestamp", milliseconds.to_bytes(8, "big", signed=True))


def test_last_header_is_the_timestamp_and_is_removed() -> None:
    own = ("millstream.timestamp", b"the user's")
    found = with_header_timestamps(
        raw(
            (("a", b"x"), time_header(5)),
            (own, time_header(-1)),
            (own,),
            (time_header(6), ("b", None)),
            (),
        )
    )
    assert found.timestamps == [5, -1, 1_002, 1_003, 1_004]
    assert found.headers == [(("a", b"x"),), (own,), (own,), (time_header(6), ("b", None)), ()]
    assert (found.keys, found.values) == ([b"k"] * 5, [b"v"] * 5)
    assert (list(found.offsets), found.leader_epoch) == ([0, 1, 2, 3, 4], 4)


def test_records_without_other_headers_have_none() -> None:
    found = with_header_timestamps(raw((time_header(5),), (time_header(6),)))
    assert (found.timestamps, found.headers) == ([5, 6], None)


def test_records_without_headers_are_unchanged() -> None:
    records = Raw([None], [b"v"], [7], [0], None)
    assert with_header_timestamps(records) is records
