"""Records that bring their time in a header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millstream.record import Headers
from millstream.runtime.task.queues.times_in_headers import timed


class Raw(NamedTuple):
    """Records as a poll gives them."""

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


def time(milliseconds: int) -> tuple[str, bytes]:
    return ("millstream.timestamp", milliseconds.to_bytes(8, "big", signed=True))


def test_the_last_header_is_the_time_and_is_taken_off() -> None:
    own = ("millstream.timestamp", b"the user's")
    found = timed(raw((("a", b"x"), time(5)), (own, time(-1)), (own,), (time(6), ("b", None)), ()))
    assert found.timestamps == [5, -1, 1_002, 1_003, 1_004]
    assert found.headers == [(("a", b"x"),), (own,), (own,), (time(6), ("b", None)), ()]
    assert (found.keys, found.values) == ([b"k"] * 5, [b"v"] * 5)
    assert (list(found.offsets), found.leader_epoch) == ([0, 1, 2, 3, 4], 4)


def test_records_that_have_no_other_header_have_none() -> None:
    found = timed(raw((time(5),), (time(6),)))
    assert (found.timestamps, found.headers) == ([5, 6], None)


def test_records_without_headers_stay_as_they_are() -> None:
    records = Raw([None], [b"v"], [7], [0], None)
    assert timed(records) is records
