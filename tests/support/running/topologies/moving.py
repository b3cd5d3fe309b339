"""An application with every kind of store and join, the same as tests/java/Moving.java: each of its
outputs tells which ids it has seen, so that instances of both may share the work.

The ids go through a repartition topic into aggregates, which keep them all, and through joins,
which tell each of them once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from millstream import (
    BufferConfig,
    JoinWindows,
    Materialized,
    Processor,
    Record,
    SessionWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)
from millstream.kafka.partitioner import partition_for
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka
from support.broker.records import Places, Sent
from support.broker.topics import read_all, unique
from support.meanwhile import meanwhile
from support.waiting import wait_for

GROUPS = 100
HOUR = timedelta(hours=1)
#: Ids of one block follow each other at this pace; between blocks sessions end.
ID_EACH_MS = 10
BLOCK = 1_000
BLOCK_PAUSE_MS = 60_000
#: The time of ids below 0, which close windows and are nobody's.
LATER_MS = 3 * 3_600_000

_TOLD_S = 120
_TABLES = ("prices", "kinds", "places")

#: Their last values together hold each id once.
KEEPING = ("ids", "memory", "windows", "sessions", "suppressed")
#: They have one record for each id.
TELLING = ("priced", "placed", "paired", "seen")
#: Its last value for each id is the id.
TABLED = "tabled"
#: All outputs.
ALL = frozenset({*KEEPING, *TELLING, TABLED})


def place_of(value: str) -> str:
    """The key in the tables that an id is joined with."""
    return f"n{int(value) % GROUPS}"


def group_of(value: str) -> str:
    """What an id is collected under."""
    return f"g{int(value) % GROUPS}"


def _add(_: str, value: str, known: str) -> str:
    return value if not known else f"{known} {value}"


def _merge(_: str, one: str, other: str) -> str:
    return " ".join(each for each in (one, other) if each)


class Seen(Processor[str, str, str, str]):
    """Tells how often it has met an id, in stores that only processors have."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.plain = context.get_state_store("plain")
        self.times = context.get_state_store("times")

    def process(self, record: Record[str, str]) -> None:
        before = self.plain.get(record.key)
        self.plain.put(record.key, record.value)
        self.times.put(record.key, record.value, record.timestamp)
        with self.times.fetch(record.key, record.timestamp, record.timestamp) as found:
            often = len(list(found))
        if often != 1 or before is not None:
            self.context.forward(record.with_value(f"{record.value} again, {often} times"))
        else:
            self.context.forward(record)


def moving_topology(name: str) -> Topology:
    """The topology whose topics begin with a name."""
    builder = StreamsBuilder()
    builder.add_state_store(
        Stores.key_value_builder(Stores.persistent_key_value("plain"), STRING, STRING)
    )
    builder.add_state_store(
        Stores.window_builder(
            Stores.persistent_window("times", HOUR, timedelta(seconds=1), retain_duplicates=True),
            STRING,
            STRING,
        )
    )
    records = builder.stream(f"{name}-records", key=STRING, value=STRING)
    others = builder.stream(f"{name}-others", key=STRING, value=STRING)
    prices = builder.table(
        f"{name}-prices",
        key=STRING,
        value=STRING,
        store=Materialized("prices", kind="versioned", history_retention=HOUR),
    )
    kinds = builder.table(f"{name}-kinds", key=STRING, value=STRING, store="kinds")
    places = builder.global_table(f"{name}-places", key=STRING, value=STRING, store="places")

    groups = records.group_by(
        lambda _, value: group_of(value), key=STRING, value=STRING, name="groups"
    )
    groups.aggregate(str, _add, store=Materialized("ids", key=STRING, value=STRING)).to_stream().to(
        f"{name}-ids", key=STRING, value=STRING
    )
    groups.aggregate(
        str, _add, store=Materialized("memory", kind="in_memory", key=STRING, value=STRING)
    ).to_stream().to(f"{name}-memory", key=STRING, value=STRING)
    windows = groups.windowed_by(TimeWindows(timedelta(seconds=10), grace=HOUR)).aggregate(
        str, _add, store=Materialized("windows", key=STRING, value=STRING)
    )
    windows.to_stream(lambda key, _: f"{key.key}@{key.window.start_ms}").to(
        f"{name}-windows", key=STRING, value=STRING
    )
    closed = Suppressed.until_window_closes(BufferConfig.unbounded(), name="closed")
    windows.suppress(closed).to_stream(lambda key, _: f"{key.key}@{key.window.start_ms}").to(
        f"{name}-suppressed", key=STRING, value=STRING
    )
    groups.windowed_by(SessionWindows(timedelta(seconds=5), grace=HOUR)).aggregate(
        str, _add, session_merger=_merge, store=Materialized("sessions", key=STRING, value=STRING)
    ).to_stream(lambda key, _: f"{key.key}@{key.window.start_ms}-{key.window.end_ms}").to(
        f"{name}-sessions", key=STRING, value=STRING
    )

    records.select_key(lambda _, value: place_of(value)).join(
        prices, lambda value, _: value, key=STRING, value=STRING, name="priced"
    ).to(f"{name}-priced", key=STRING, value=STRING)
    records.join(places, lambda value, _: value, key_selector=lambda _, value: place_of(value)).to(
        f"{name}-placed", key=STRING, value=STRING
    )
    records.join(
        others,
        lambda value, _: value,
        JoinWindows(timedelta(minutes=1), grace=HOUR),
        key=STRING,
        value=STRING,
        other_value=STRING,
        name="paired",
        store_name="paired",
    ).to(f"{name}-paired", key=STRING, value=STRING)
    records.process(Seen, stores=("plain", "times")).to(f"{name}-seen", key=STRING, value=STRING)
    latest = others.to_table(store=Materialized("latest", key=STRING, value=STRING))
    latest.join(
        kinds,
        lambda value, _: value,
        foreign_key=place_of,
        store=Materialized("tabled", key=STRING, value=STRING),
    ).to_stream().to(f"{name}-tabled", key=STRING, value=STRING)
    return builder.build()


class Moving:
    """The application on topics of its own, its input, and what has become of it.

    Args:
        kafka: the broker.
        partitions: of each topic.
    """

    def __init__(self, kafka: EmbeddedKafka, partitions: int = 4) -> None:
        self.bootstrap = kafka.bootstrap_servers
        self.id = unique("moving")
        self._partitions = partitions
        self._places = Places(self.bootstrap)
        names = ("records", "others", *_TABLES, *KEEPING, *TELLING, TABLED)
        self._places.create({self.topic(name): partitions for name in names})
        # In the past, but not so far that the broker deletes it.
        self._start_ms = int(time.time()) * 1_000 - 5 * 3_600_000
        #: How many ids there are: 0, 1, 2, ...
        self.written = 0
        self._places.write(
            Sent(self.topic(table), self._partition(key), key, key, self._start_ms - BLOCK_PAUSE_MS)
            for table in _TABLES
            for key in (f"n{number}" for number in range(GROUPS))
        )

    def topic(self, name: str) -> str:
        """The whole name of a topic."""
        return f"{self.id}-{name}"

    def _partition(self, key: str) -> int:
        return partition_for(key.encode(), self._partitions)

    def write(self, count: int) -> None:
        """Write that many new ids, acknowledged."""
        first = self.written
        self._write(range(first, first + count))
        self.written += count

    def _write(self, ids: Sequence[int]) -> None:
        self._places.write(
            Sent(self.topic(topic), self._partition(str(each)), str(each), str(each), at_ms)
            for each in ids
            for at_ms in [self._time_of(each)]
            for topic in ("records", "others")
        )

    def _time_of(self, each: int) -> int:
        later = LATER_MS if each < 0 else each * ID_EACH_MS + each // BLOCK * BLOCK_PAUSE_MS
        return self._start_ms + later

    def close_windows(self) -> None:
        """Let the time of each partition go beyond all grace, once nothing is on its way that would
        be too late then."""
        self._wait_told(ALL - {"suppressed"})
        self._write([*range(-2 * GROUPS, 0)])

    @contextmanager
    def arriving(self, pause_s: float = 0.1) -> Iterator[None]:
        """Input that goes on all the while: 20 ids after each pause."""
        with meanwhile(lambda: self.write(20), pause_s):
            yield

    def wait_told(self) -> None:
        """Wait until each output tells every id that was written; windows must be closed."""
        self._wait_told(ALL)

    def _wait_told(self, outputs: Set[str]) -> None:
        # One after the other: each has tens of thousands of records by now.
        for output in sorted(outputs):
            wait_for(
                lambda output=output: not self.lost({output}),  # type: ignore[misc]
                _TOLD_S,
                lambda output=output: f"everything is told: {_some(self.lost({output}))}",  # type: ignore[misc]
            )

    def told(self, outputs: Set[str] = ALL) -> dict[str, Counter[str]]:
        """How often outputs tell each id that is left in them; others are told as they are."""
        told: dict[str, Counter[str]] = {}
        for name in sorted(outputs):
            records = [
                ((key or b"").decode(), (value or b"").decode())
                for key, value in read_all(self.bootstrap, self.topic(name))
            ]
            last = records if name in TELLING else list(dict(records).items())
            ids = (each for _, value in last for each in _ids_of(name, value))
            told[name] = Counter(each for each in ids if not each.startswith("-"))
        return told

    def lost(self, outputs: Set[str] = ALL) -> dict[str, set[str]]:
        """The ids that an output does not tell, by output; none of them is empty."""
        every = {str(each) for each in range(self.written)}
        lost = {name: every - set(ids) for name, ids in self.told(outputs).items()}
        return {name: ids for name, ids in lost.items() if ids}

    def repeated(self) -> dict[str, dict[str, int]]:
        """The ids that an output tells more than once, and what is no id, by output."""
        every = {str(each) for each in range(self.written)}
        repeated = {
            name: {each: often for each, often in ids.items() if often > 1 or each not in every}
            for name, ids in self.told().items()
        }
        return {name: ids for name, ids in repeated.items() if ids}


def _some(lost: Mapping[str, Set[str]]) -> dict[str, list[str]]:
    return {name: sorted(ids)[:20] for name, ids in lost.items()}


def _ids_of(name: str, value: str) -> list[str]:
    return value.split() if name in KEEPING else [value]
