"""Transfer of metrics from a thread to the driver.

Values are sent frequently, names only when they change."""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from millstream.metrics.registry import MetricKey, MetricsScope
from millstream.metrics.values import Metric

#: A full frame is sent at least once in this number of frames. After a lost frame, the reader
#: continues with the next full frame.
_FULL_FRAME_INTERVAL: Final = 20


@dataclass(frozen=True)
class MetricsFrame:
    """All metrics, or the changes since the previous frame.

    `names` are packed; only full frames contain them. `indices` are 32-bit integers, and `values`
    are 64-bit floats. Without `indices`, the frame contains all values.
    """

    number: int
    names: bytes | None
    indices: bytes | None
    values: bytes
    strings: tuple[tuple[int, str], ...] = ()

    @property
    def size(self) -> int:
        return len(self.names or b"") + len(self.indices or b"") + len(self.values)


class FrameWriter:
    def __init__(self, scope: MetricsScope) -> None:
        self._scope = scope
        self._number = 0
        self._version = -1
        self._names = b""
        self._last: list[float | str] = []

    def full(self) -> MetricsFrame:
        """Return a full frame, with names."""
        values = self._scope.values()
        if self._version != self._scope.version:
            # Reading values may add or remove metrics.
            self._names = pack_names(self._scope.all_keys())
            self._version = self._scope.version
        self._last = values
        self._number += 1
        return MetricsFrame(self._number, self._names, None, _floats(values), _strings(values))

    def next(self) -> MetricsFrame:
        """Return a frame with the changes since the previous frame.

        Periodically, and if the names have changed, this is a full frame.
        """
        if self._number % _FULL_FRAME_INTERVAL == 0 or self._version != self._scope.version:
            return self.full()
        values = self._scope.values()
        if self._version != self._scope.version:
            return self.full()
        last = self._last
        indices = [
            index
            for index, value in enumerate(values)
            if value is not last[index] and value != last[index]
        ]
        self._last = values
        self._number += 1
        changed = [values[index] for index in indices]
        strings = tuple((p, v) for p, v in zip(indices, changed, strict=True) if isinstance(v, str))
        if 2 * len(indices) > len(values):
            return MetricsFrame(self._number, None, None, _floats(values), _strings(values))
        return MetricsFrame(
            self._number, None, array("I", indices).tobytes(), _floats(changed), strings
        )


class _Snapshot(NamedTuple):
    """The metrics after one frame. Immutable, so that any thread can read them."""

    keys: list[MetricKey]
    values: list[float | str]


class FrameReader:
    """Reassembles metrics from frames, on the driver, for one run of a thread.

    Frames are applied on one thread. The metrics can be read on any thread.
    """

    def __init__(self) -> None:
        self._snapshot = _Snapshot([], [])
        self._names = b""
        self._number = 0
        #: Indices of the values of each metric, by group and name. Filled on demand.
        self._indices: dict[tuple[str, str], list[int]] = {}

    def apply(self, frame: MetricsFrame) -> None:
        """Apply a frame.

        After a lost frame, frames without names are ignored until the next full frame.
        """
        keys = self._snapshot.keys
        if frame.names is not None:
            # The names of periodic full frames are mostly unchanged.
            if frame.names != self._names:
                keys = unpack_names(frame.names)
                self._names = frame.names
                self._indices.clear()
        elif frame.number != self._number + 1:
            return
        self._number = frame.number
        values: list[float | str] = []
        numbers = array("d", frame.values)
        if frame.indices is None:
            values += numbers
        else:
            values += self._snapshot.values
            for index, value in zip(array("I", frame.indices), numbers, strict=True):
                values[index] = value
        for index, text in frame.strings:
            values[index] = text
        self._snapshot = _Snapshot(keys, values)

    def metrics(self) -> list[Metric]:
        keys, values = self._snapshot
        return [
            Metric(key.name, dict(key.labels), value, key.group)
            for key, value in zip(keys, values, strict=True)
        ]

    def by_label(self, group: str, name: str, label: str) -> dict[str, float | str]:
        """Return the values of a metric by one label.

        Only call this on the thread that applies frames. It is called for each frame of each
        thread, so a scan of all metrics would take too long.
        """
        keys, values = self._snapshot
        indices = self._indices.get((group, name))
        if indices is None:
            indices = [at for at, key in enumerate(keys) if (key.group, key.name) == (group, name)]
            self._indices[group, name] = indices
        return {dict(keys[index].labels)[label]: values[index] for index in indices}


def pack_names(keys: Iterable[MetricKey]) -> bytes:
    """Pack names without repeating common labels and groups."""
    blocks: list[tuple[str, tuple[tuple[str, str], ...], list[str]]] = []
    for key in keys:
        if not blocks or blocks[-1][:2] != (key.group, key.labels):
            blocks.append((key.group, key.labels, []))
        blocks[-1][2].append(key.name)
    return zlib.compress(json.dumps(blocks, separators=(",", ":")).encode(), 1)


def unpack_names(packed: bytes) -> list[MetricKey]:
    return [
        MetricKey(name, group, tuple((label, value) for label, value in labels))
        for group, labels, names in json.loads(zlib.decompress(packed))
        for name in names
    ]


def _floats(values: list[float | str]) -> bytes:
    return array("d", [0.0 if isinstance(value, str) else value for value in values]).tobytes()


def _strings(values: list[float | str]) -> tuple[tuple[int, str], ...]:
    return tuple((index, value) for index, value in enumerate(values) if isinstance(value, str))
