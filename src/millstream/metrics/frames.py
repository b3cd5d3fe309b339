"""How metrics travel from a thread to its driver: numbers often, names only when they change."""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from millstream.metrics.registry import MetricKey, Scope
from millstream.metrics.values import Metric

#: How often everything is sent, changed or not: what got lost on the way comes back with it.
_WHOLE_EVERY: Final = 20


@dataclass(frozen=True)
class MetricsFrame:
    """What metrics are, or what has changed since the frame before.

    Args:
        number: of the frame; one more than that of the frame it follows.
        names: which metrics there are, packed; None in a frame that follows another one.
        places: of the values that have changed, as 32-bit numbers; None if these are all.
        values: as 64-bit floats.
        texts: values that are texts, by their place.
    """

    number: int
    names: bytes | None
    places: bytes | None
    values: bytes
    texts: tuple[tuple[int, str], ...] = ()

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return len(self.names or b"") + len(self.places or b"") + len(self.values)


class FrameWriter:
    """Makes frames of the metrics of a thread.

    Args:
        scope: the metrics.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._number = 0
        self._version = -1
        self._names = b""
        self._last: list[float | str] = []

    def whole(self) -> MetricsFrame:
        """All of them, with their names."""
        values = self._scope.values()
        if self._version != self._scope.version:
            # Reading may have changed what there is.
            self._names = pack_names(self._scope.all_keys())
            self._version = self._scope.version
        self._last = values
        self._number += 1
        return MetricsFrame(self._number, self._names, None, _floats(values), _texts(values))

    def next(self) -> MetricsFrame:
        """What has changed since the last frame; now and then all of them."""
        if self._number % _WHOLE_EVERY == 0 or self._version != self._scope.version:
            return self.whole()
        values = self._scope.values()
        if self._version != self._scope.version:
            return self.whole()
        last = self._last
        places = [
            place
            for place, value in enumerate(values)
            if value is not last[place] and value != last[place]
        ]
        self._last = values
        self._number += 1
        changed = [values[place] for place in places]
        texts = tuple((p, v) for p, v in zip(places, changed, strict=True) if isinstance(v, str))
        if 2 * len(places) > len(values):
            return MetricsFrame(self._number, None, None, _floats(values), _texts(values))
        return MetricsFrame(
            self._number, None, array("I", places).tobytes(), _floats(changed), texts
        )


class _Known(NamedTuple):
    """What a reader knows at a moment. Never changed, so that it can be read on any thread."""

    keys: list[MetricKey]
    values: list[float | str]


class FrameReader:
    """Puts together what frames tell; on the driver's side, one for each life of a thread.

    Frames are taken on one thread, and what they have told is read on any.
    """

    def __init__(self) -> None:
        self._known = _Known([], [])
        self._names = b""
        self._number = 0
        #: Where the values of a metric are, by its group and name, once somebody has asked.
        self._places: dict[tuple[str, str], list[int]] = {}

    def take(self, frame: MetricsFrame) -> None:
        """Follow a frame. One that follows a frame which has not come is left out: sooner or later
        one with everything comes."""
        keys = self._known.keys
        if frame.names is not None:
            # Those that come now and then are mostly what is known.
            if frame.names != self._names:
                keys = unpack_names(frame.names)
                self._names = frame.names
                self._places.clear()
        elif frame.number != self._number + 1:
            return
        self._number = frame.number
        values: list[float | str] = []
        told = array("d", frame.values)
        if frame.places is None:
            values += told
        else:
            values += self._known.values
            for place, value in zip(array("I", frame.places), told, strict=True):
                values[place] = value
        for place, text in frame.texts:
            values[place] = text
        self._known = _Known(keys, values)

    def metrics(self) -> list[Metric]:
        """All of them, as they were told last."""
        keys, values = self._known
        return [
            Metric(key.name, dict(key.labels), value, key.group)
            for key, value in zip(keys, values, strict=True)
        ]

    def by_label(self, group: str, name: str, label: str) -> dict[str, float | str]:
        """The values of one metric, by one of its labels. On the thread that takes frames.

        Asked with each frame of each thread, where looking through all metrics takes too long.
        """
        keys, values = self._known
        places = self._places.get((group, name))
        if places is None:
            places = [at for at, key in enumerate(keys) if (key.group, key.name) == (group, name)]
            self._places[group, name] = places
        return {dict(keys[place].labels)[label]: values[place] for place in places}


def pack_names(keys: Iterable[MetricKey]) -> bytes:
    """Names, without saying the same labels and groups again and again."""
    blocks: list[tuple[str, tuple[tuple[str, str], ...], list[str]]] = []
    for key in keys:
        if not blocks or blocks[-1][:2] != (key.group, key.labels):
            blocks.append((key.group, key.labels, []))
        blocks[-1][2].append(key.name)
    return zlib.compress(json.dumps(blocks, separators=(",", ":")).encode(), 1)


def unpack_names(packed: bytes) -> list[MetricKey]:
    """The inverse of `pack_names`."""
    return [
        MetricKey(name, group, tuple((label, value) for label, value in labels))
        for group, labels, names in json.loads(zlib.decompress(packed))
        for name in names
    ]


def _floats(values: list[float | str]) -> bytes:
    return array("d", [0.0 if isinstance(value, str) else value for value in values]).tobytes()


def _texts(values: list[float | str]) -> tuple[tuple[int, str], ...]:
    return tuple((place, value) for place, value in enumerate(values) if isinstance(value, str))
