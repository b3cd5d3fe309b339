"""The keys under which windows and sessions are stored and logged: bytes that sort by time.

A window: `key + int64 start + int32 number`, the number telling duplicates apart, else 0 (Kafka
Streams' `WindowKeySchema`). A session: `key + int64 end + int64 start` (`SessionKeySchema`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add
from typing import Any, Final

from millstream.serdes import Serde
from millstream.windowed import (
    MAX_TIME_MS,
    Window,
    Windowed,
    all_in_windows,
    end_of_window,
    sound_window,
    sound_windows,
    windowed,
)

_TIME: Final = struct.Struct(">q")
_START: Final = struct.Struct(">qi")
_SESSION: Final = struct.Struct(">qq")

#: The highest number that tells duplicates apart.
LAST_NUMBER: Final = 2**31 - 1
#: Behind every number that tells duplicates apart.
_AFTER_NUMBERS: Final = b"\xff\xff\xff\xff"
_AFTER_STARTS: Final = b"\xff" * 8


class KeyLayout:
    """How the time of a stored key is found, and which stored keys a stretch of time spans.

    Args:
        suffix_bytes: what follows the key.
        first: the suffix of the first stored key at a time.
        after: the suffix behind all stored keys at a time.
    """

    def __init__(self, suffix_bytes: int, first: bytes, after: bytes) -> None:
        self.suffix_bytes = suffix_bytes
        self._first = first
        self._after = after

    def key_of(self, stored: bytes) -> bytes:
        """The serialized key, without its window."""
        return stored[: -self.suffix_bytes]

    def time_of(self, stored: bytes) -> int:
        """A window's start, a session's end."""
        time: int = _TIME.unpack_from(stored, len(stored) - self.suffix_bytes)[0]
        return time

    def first_at(self, key: bytes, time: int) -> bytes:
        """The first stored key that a key can have at a time; times have 63 bits."""
        if time < 0:
            time = 0
        return key + _TIME.pack(time if time < MAX_TIME_MS else MAX_TIME_MS) + self._first

    def after(self, key: bytes, time: int) -> bytes:
        """What comes after all stored keys of a key at a time."""
        if time < 0:
            # Before all of them: written as they are, negative times would come last.
            return self.first_at(key, 0)
        return key + _TIME.pack(time if time < MAX_TIME_MS else MAX_TIME_MS) + self._after


#: Of windows: the time is their start.
WINDOWS: Final = KeyLayout(_START.size, b"", _AFTER_NUMBERS)
#: Of sessions: the time is their end.
SESSIONS: Final = KeyLayout(_SESSION.size, b"", _AFTER_STARTS)


def window_key(key: bytes, start: int, number: int = 0) -> bytes:
    """The stored key of a window: 0.13 us.

    Args:
        key: the serialized key.
        start: of the window, in milliseconds.
        number: tells duplicates apart.
    """
    return key + _START.pack(start, number)


def window_keys(
    keys: Iterable[bytes], starts: Iterable[int], numbers: Iterable[int]
) -> Iterator[bytes]:
    """The stored keys of many windows, with the numbers that tell duplicates apart: 0.1 us each."""
    return map(add, keys, map(_START.pack, starts, numbers))


def number_of(stored: bytes) -> int:
    """The number of a stored key of a window, which tells duplicates apart."""
    return int.from_bytes(stored[-4:], "big")


def session_key(key: bytes, start: int, end: int) -> bytes:
    """The stored key of a session.

    Args:
        key: the serialized key.
        start: of the session, in milliseconds.
        end: of the session, in milliseconds.
    """
    return key + _SESSION.pack(end, start)


def session_of(stored: bytes) -> tuple[int, int]:
    """The start and the end of the session of a stored key."""
    end, start = _SESSION.unpack_from(stored, len(stored) - _SESSION.size)
    return start, end


class _Windows(dict[bytes, Window]):
    """Windows by the suffix of their stored keys, each made once."""

    def __init__(self, times_of: Callable[[bytes], tuple[int, int]]) -> None:
        self._times_of = times_of

    def __missing__(self, suffix: bytes) -> Window:
        window = self[suffix] = sound_window(*self._times_of(suffix))
        return window


class StoredKeySerde(Serde[Windowed[Any]]):
    """Stored keys as `Windowed`, for what a cache forwards and an iterator gives.

    Args:
        inner: the serde of the keys.
        layout: `WINDOWS` or `SESSIONS`.
        size_ms: how long windows are; of no importance for sessions.
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
        """The windowed key of each stored key; None is not among them."""
        size, times_of = self._suffix, self._window
        keys = self._inner.deserialize_many(topic, [data[:-size] for data in datas])  # type: ignore[index]
        suffixes = [data[-size:] for data in datas]  # type: ignore[index]
        if times_of is session_of:
            numbers = struct.unpack(f">{2 * len(suffixes)}q", b"".join(suffixes))
            return all_in_windows(keys, sound_windows(numbers[1::2], numbers[::2]))
        # Few windows are flushed at a time, so most keys share one: 0.4 us a key, and 1.5 us with
        # a window made for each. Sessions are hardly ever the same.
        windows = _Windows(times_of)
        return all_in_windows(keys, map(windows.__getitem__, suffixes))

    def _encode(self, topic: str, value: Windowed[Any]) -> bytes:
        raise NotImplementedError("stored keys are made by window_key and session_key")

    def _decode(self, topic: str, data: bytes) -> Windowed[Any]:
        key = self._inner.deserialize(topic, data[: -self._suffix])
        return windowed(key, *self._window(data))

    def _time_window(self, stored: bytes) -> tuple[int, int]:
        start: int = _TIME.unpack_from(stored, len(stored) - self._suffix)[0]
        return start, end_of_window(start, self._size_ms)
