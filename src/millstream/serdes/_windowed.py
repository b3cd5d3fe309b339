"""Serdes for windowed keys, compatible with Kafka Streams' windowed serdes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

from millstream.errors import BatchSerializationError
from millstream.serdes._serde import ArgumentsSerde, Serde, WrongValueError
from millstream.windowed import MAX_TIME_MS, Window, Windowed, fixed_window_end, unchecked_windowed

K = TypeVar("K")

_TIME: Final = struct.Struct(">q")
_TIMES: Final = struct.Struct(">qq")
#: The size of the sequence number that follows the window start in changelogs. It distinguishes
#: duplicates.
_SEQUENCE_BYTES: Final = 4


def time_windowed(
    inner: Serde[K], size: timedelta, *, changelog: bool = False
) -> Serde[Windowed[K]]:
    """Return a serde for keys in windows of a fixed size.

    It writes the key, then the start of the window as int64. Compatible with Kafka Streams'
    `TimeWindowedSerde`, which does not write the size.

    Args:
        size: the window size; `timedelta.max` for windows that never end.
        changelog: whether to read the keys of a window store's changelog, which have a sequence
            number after the start (`forChangelog`). This does not affect writing.

    Raises:
        ValueError: the size is negative.

    Example:
        >>> minutes = time_windowed(STRING, timedelta(minutes=1))
        >>> minutes.serialize("clicks", Windowed("k", Window(60_000, 120_000))).hex()
        '6b000000000000ea60'
        >>> str(minutes.deserialize("clicks", bytes.fromhex("6b000000000000ea60")))
        '[k@60000/120000]'
    """
    return TimeWindowedSerde(inner, size, changelog)


def session_windowed(inner: Serde[K]) -> Serde[Windowed[K]]:
    """Return a serde for keys in sessions: the key, then the end and start as int64.

    Compatible with Kafka Streams' `SessionWindowedSerde`, on topics and in changelogs.

    Example:
        >>> session_windowed(STRING).serialize("visits", Windowed("k", Window(1, 5))).hex()
        '6b00000000000000050000000000000001'
    """
    return SessionWindowedSerde(inner)


class WindowedSerde(ArgumentsSerde[Windowed[K]]):
    """The base class of windowed serdes: the bytes of the inner key, then the window."""

    def __init__(self, inner: Serde[K], name: str, suffix_bytes: int) -> None:
        super().__init__(self._encode, self._decode, immutable=inner.immutable, name=name)
        #: The serde of the keys. Records are partitioned by the inner key's bytes alone.
        self.inner = inner
        self._suffix_bytes = suffix_bytes

    def serialize_many(self, topic: str, values: Sequence[Any]) -> list[bytes | None]:
        # Takes 0.25 us per key in windows of a fixed size with STRING, compared to 0.7 us in single
        # calls.
        try:
            keys = self.inner.serialize_many(topic, [value[0] for value in values])
            suffixes = self._pack_many([value[1] for value in values])
            return [key + suffix for key, suffix in zip(keys, suffixes, strict=True)]  # type: ignore[operator]
        except (BatchSerializationError, TypeError, IndexError, KeyError, struct.error):
            # The list contains None or an invalid value. The slow path keeps None, and reports the
            # invalid value.
            return super().serialize_many(topic, values)

    def deserialize_many(self, topic: str, datas: Sequence[bytes | None]) -> list[Any]:
        # Takes 1.1 us per key with STRING, compared to 1.5 us in single calls.
        size = self._suffix_bytes
        try:
            keys = self.inner.deserialize_many(topic, [data[:-size] for data in datas])  # type: ignore[index]
            window = self._unpack
            return [
                unchecked_windowed(key, *window(data))  # type: ignore[arg-type]
                for key, data in zip(keys, datas, strict=True)
            ]
        except (BatchSerializationError, TypeError, struct.error):
            return super().deserialize_many(topic, datas)

    def _encode(self, topic: str, value: Any) -> bytes:
        if not isinstance(value, Windowed):
            raise WrongValueError("it requires Windowed")
        key = self.inner.serialize(topic, value.key)
        if key is None:
            raise WrongValueError("a windowed key must not be None")
        return key + self._pack(value.window)

    def _decode(self, topic: str, data: bytes) -> Windowed[K]:
        size = self._suffix_bytes
        if len(data) < size:
            raise WrongValueError(f"it requires at least {size} bytes")
        key = self.inner.deserialize(topic, data[:-size])
        return unchecked_windowed(key, *self._unpack(data))

    def _pack(self, window: Window) -> bytes:
        raise NotImplementedError

    def _pack_many(self, windows: list[Window]) -> Iterable[bytes]:
        return map(self._pack, windows)

    def _unpack(self, data: bytes) -> tuple[int, int]:
        raise NotImplementedError


class TimeWindowedSerde(WindowedSerde[K]):
    def __init__(self, inner: Serde[K], size: timedelta, changelog: bool) -> None:
        size_ms = MAX_TIME_MS if size == timedelta.max else size // timedelta(milliseconds=1)
        if size_ms < 0:
            raise ValueError(f"The window size must not be negative, but is {size}.")
        suffix = _TIME.size + (_SEQUENCE_BYTES if changelog else 0)
        super().__init__(inner, f"time_windowed({inner.name})", suffix)
        self.size = size
        self._size_ms = size_ms
        self._arguments = (inner, size, changelog)

    def _pack(self, window: Window) -> bytes:
        return _TIME.pack(window[0])

    def _pack_many(self, windows: list[Window]) -> Iterable[bytes]:
        return map(_SuffixCache(self._pack).__getitem__, windows)

    def _unpack(self, data: bytes) -> tuple[int, int]:
        start: int = _TIME.unpack_from(data, len(data) - self._suffix_bytes)[0]
        return start, fixed_window_end(start, self._size_ms)


class SessionWindowedSerde(WindowedSerde[K]):
    def __init__(self, inner: Serde[K]) -> None:
        super().__init__(inner, f"session_windowed({inner.name})", _TIMES.size)
        self._arguments = (inner,)

    def _pack(self, window: Window) -> bytes:
        return _TIMES.pack(window[1], window[0])

    def _pack_many(self, windows: list[Window]) -> Iterable[bytes]:
        pack = _TIMES.pack
        return [pack(end, start) for start, end in windows]

    def _unpack(self, data: bytes) -> tuple[int, int]:
        end, start = _TIMES.unpack_from(data, len(data) - _TIMES.size)
        return start, end


class _SuffixCache(dict[Window, bytes]):
    """Caches the suffixes of serialized keys by window.

    Many keys share a window.
    """

    def __init__(self, pack: Callable[[Window], bytes]) -> None:
        super().__init__()
        self._pack = pack

    def __missing__(self, window: Window) -> bytes:
        self[window] = suffix = self._pack(window)
        return suffix
