"""The stored keys of windows and sessions: bytes that sort by time within a key.

A window: `key + int64 start + int32 seqnum`; the sequence number distinguishes duplicates and is
otherwise 0 (Kafka Streams' `WindowKeySchema`). A session: `key + int64 end + int64 start`
(`SessionKeySchema`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add
from typing import Any, Final, TypeVar

from millstream.serdes import Serde
from millstream.windowed import (
    MAX_TIME_MS,
    Window,
    Windowed,
    fixed_window_end,
    unchecked_window,
    unchecked_windowed,
    unchecked_windows,
    windowed_keys,
)

V = TypeVar("V")

_TIME: Final = struct.Struct(">q")
_START: Final = struct.Struct(">qi")
_SESSION: Final = struct.Struct(">qq")

#: The highest sequence number of a duplicate.
MAX_SEQNUM: Final = 2**31 - 1
#: Sorts after every sequence number.
_AFTER_SEQNUMS: Final = b"\xff\xff\xff\xff"
_AFTER_STARTS: Final = b"\xff" * 8


class KeyLayout:
    """The position of the time in stored keys, and the bounds of the keys at a time.

    Args:
        first: the bytes after the time in the lowest stored key at a time.
        after: bytes greater than those after the time in any stored key.
    """

    def __init__(self, suffix_bytes: int, first: bytes, after: bytes) -> None:
        self.suffix_bytes = suffix_bytes
        self._first = first
        self._after = after

    def key_of(self, stored: bytes) -> bytes:
        return stored[: -self.suffix_bytes]

    def time_of(self, stored: bytes) -> int:
        """Return the start of a window or the end of a session."""
        time: int = _TIME.unpack_from(stored, len(stored) - self.suffix_bytes)[0]
        return time

    def first_at(self, key: bytes, time: int) -> bytes:
        """Return the lowest possible stored key of a key at a time.

        The time is clamped to 63 bits.
        """
        if time < 0:
            time = 0
        return key + _TIME.pack(time if time < MAX_TIME_MS else MAX_TIME_MS) + self._first

    def after(self, key: bytes, time: int) -> bytes:
        """Return an upper bound of all stored keys of a key at a time."""
        if time < 0:
            # Negative times would sort last.
            return self.first_at(key, 0)
        return key + _TIME.pack(time if time < MAX_TIME_MS else MAX_TIME_MS) + self._after


#: The layout of windows: the time is the start.
WINDOWS: Final = KeyLayout(_START.size, b"", _AFTER_SEQNUMS)
#: The layout of sessions: the time is the end.
SESSIONS: Final = KeyLayout(_SESSION.size, b"", _AFTER_STARTS)


def with_keys_between(
    pairs: list[tuple[bytes, V]], lowest: bytes | None, highest: bytes | None, layout: KeyLayout
) -> list[tuple[bytes, V]]:
    """Return the stored pairs with keys from `lowest` to `highest`.

    None leaves that side open.
    """
    key_of = layout.key_of
    if lowest is not None:
        pairs = [pair for pair in pairs if key_of(pair[0]) >= lowest]
    if highest is not None:
        pairs = [pair for pair in pairs if key_of(pair[0]) <= highest]
    return pairs


def window_key(key: bytes, start: int, seqnum: int = 0) -> bytes:
    """Return the stored key of a window. Takes 0.13 us."""
    return key + _START.pack(start, seqnum)


def window_keys(
    keys: Iterable[bytes], starts: Iterable[int], seqnums: Iterable[int]
) -> Iterator[bytes]:
    """Return the stored keys of many windows. Takes 0.1 us each."""
    return map(add, keys, map(_START.pack, starts, seqnums))


def seqnum_of(stored: bytes) -> int:
    return int.from_bytes(stored[-4:], "big")


def session_key(key: bytes, start: int, end: int) -> bytes:
    return key + _SESSION.pack(end, start)


def session_of(stored: bytes) -> tuple[int, int]:
    end, start = _SESSION.unpack_from(stored, len(stored) - _SESSION.size)
    return start, end


class _WindowsBySuffix(dict[bytes, Window]):
    """Windows by the suffix of their stored keys, each created once."""

    def __init__(self, times_of: Callable[[bytes], tuple[int, int]]) -> None:
        self._times_of = times_of

    def __missing__(self, suffix: bytes) -> Window:
        window = self[suffix] = unchecked_window(*self._times_of(suffix))
        return window


class StoredKeySerde(Serde[Windowed[Any]]):
    """Deserializes stored keys to `Windowed`, for cache changes and iterators.

    Args:
        size_ms: the window size; ignored for sessions.
    """

    def __init__(self, inner: Serde[Any], layout: KeyLayout, size_ms: int = 0) -> None:
        self._inner = inner
        self._suffix = layout.suffix_bytes
        self._size_ms = size_ms
        self._window: Callable[[bytes], tuple[int, int]] = (
            session_of if layout is SESSIONS else self._time_window
        )
        super().__init__(self._encode, self._decode, immutable=inner.immutable, name=inner.name)

    def deserialize_many(self, topic: str, datas: Sequence[bytes | None]) -> list[Any]:
        """Return the windowed key of each stored key; none of them may be None."""
        size, times_of = self._suffix, self._window
        keys = self._inner.deserialize_many(topic, [data[:-size] for data in datas])  # type: ignore[index]
        suffixes = [data[-size:] for data in datas]  # type: ignore[index]
        if times_of is session_of:
            times = struct.unpack(f">{2 * len(suffixes)}q", b"".join(suffixes))
            return windowed_keys(keys, unchecked_windows(times[1::2], times[::2]))
        # Few windows are flushed at a time, so most keys share a window: 0.4 us per key, compared
        # to 1.5 us if each key gets its own window. Sessions are rarely equal.
        windows = _WindowsBySuffix(times_of)
        return windowed_keys(keys, map(windows.__getitem__, suffixes))

    def _encode(self, topic: str, value: Windowed[Any]) -> bytes:
        raise NotImplementedError("stored keys are created by window_key and session_key")

    def _decode(self, topic: str, data: bytes) -> Windowed[Any]:
        key = self._inner.deserialize(topic, data[: -self._suffix])
        return unchecked_windowed(key, *self._window(data))

    def _time_window(self, stored: bytes) -> tuple[int, int]:
        start: int = _TIME.unpack_from(stored, len(stored) - self._suffix)[0]
        return start, fixed_window_end(start, self._size_ms)
