"""Windowed keys on topics: their serdes, and the partitions they belong to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

from millstream.kafka.partitioner import partition_for, partitions_for
from millstream.serdes import Serde, session_windowed, time_windowed
from millstream.serdes._windowed import WindowedSerde
from millstream.serdes._wrapper import WrapperSerde
from millstream.topology.physical.nodes import Partitioner
from millstream.windowed import MAX_TIME_MS, Windowed


def time_windowed_serde(inner: Serde[Any] | None, size_ms: int) -> Serde[Windowed[Any]]:
    """The serde of keys in windows of a fixed size.

    Args:
        inner: of the keys; None for the config's default.
        size_ms: how long windows are; those that never end have the highest number there is.
    """
    size = timedelta.max if size_ms == MAX_TIME_MS else timedelta(milliseconds=size_ms)
    return _around(inner, partial(time_windowed, size=size))


def session_windowed_serde(inner: Serde[Any] | None) -> Serde[Windowed[Any]]:
    """The serde of keys in sessions.

    Args:
        inner: of the keys; None for the config's default.
    """
    return _around(inner, session_windowed)


def _around(
    inner: Serde[Any] | None, wrap: Callable[[Serde[Any]], Serde[Windowed[Any]]]
) -> Serde[Windowed[Any]]:
    return _OpenWindowedSerde(wrap) if inner is None else wrap(inner)


class _OpenWindowedSerde(WrapperSerde[Windowed[Any]]):
    """A windowed serde whose inner one is known only with the config."""

    def __init__(self, wrap: Callable[[Serde[Any]], Any]) -> None:
        super().__init__(None, _unresolved, _unresolved, name="windowed(default)")
        self._wrap = wrap

    def __reduce__(self) -> tuple[Any, ...]:
        return (_OpenWindowedSerde, (self._wrap,))

    def around(self, inner: Serde[Any]) -> Any:
        """The windowed serde of these keys."""
        return self._wrap(inner)


def _unresolved(topic: str, value: Any) -> NoReturn:
    raise AssertionError(f"the serde of the keys of {topic} is not resolved")


@dataclass(frozen=True)
class PartitionByInnerKey:
    """Puts all windows of a key into one partition: that of the key (`WindowedStreamPartitioner`).

    A sink of windowed keys has it unless the user chose a partitioner.
    """

    def __call__(self, topic: str, key: Windowed[Any], value: Any, count: int) -> int | None:
        """Not before it is bound to a serde."""
        _unresolved(topic, key)

    def bound(self, serde: Serde[Any]) -> BoundToInnerKey:
        """The partitioner of keys of that serde, once it is known.

        Args:
            serde: of the windowed keys.
        """
        assert isinstance(serde, WindowedSerde), f"{serde} is not of windowed keys"
        return BoundToInnerKey(serde.inner)


class BoundToInnerKey:
    """`PartitionByInnerKey` of keys whose serde is known.

    Args:
        inner: the serde of the keys without their windows.
    """

    def __init__(self, inner: Serde[Any]) -> None:
        self._inner = inner

    def __call__(self, topic: str, key: Windowed[Any], value: Any, count: int) -> int | None:
        """The partition of one record."""
        if not isinstance(key, Windowed):
            # The serde refuses it, and tells why.
            return None
        data = self._inner.serialize(topic, key.key)
        return None if data is None else partition_for(data, count)

    def partition_all(self, topic: str, keys: Sequence[Any], count: int) -> list[int] | None:
        """The partitions of many records; None if they must be asked for one by one.

        0.16 us a record with STRING inside, one by one 0.5 us.
        """
        try:
            datas = self._inner.serialize_many(topic, [key.key for key in keys])
        except Exception:  # Which one it is, and what to do, is found out one by one.
            return None
        return None if None in datas else partitions_for(datas, count)  # type: ignore[arg-type]


def partitioner_of(serde: Serde[Any] | None) -> Partitioner | None:
    """What partitions keys of that serde; None for Kafka's default."""
    if isinstance(serde, WindowedSerde | _OpenWindowedSerde):
        return PartitionByInnerKey()
    return None
