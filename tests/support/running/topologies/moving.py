"""An application with every kind of store and join, the same as tests/java/Moving.java.

Each of its outputs shows the ids that it has processed, so that instances of both can share the
work. The ids go through a repartition topic into aggregates, which store all of them, and through
joins, which output each of them once.
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
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka
from support.background import background
from support.broker.topics import BrokerTopics, keyed, read_all, unique
from support.waiting import wait_for

GROUPS = 100
HOUR = timedelta(hours=1)
#: The time between consecutive ids of a block; sessions end between blocks.
ID_EACH_MS = 10
BLOCK = 1_000
BLOCK_PAUSE_MS = 60_000
#: The timestamp of negative ids, which only close windows.
LATER_MS = 3 * 3_600_000

_COMPLETE_S = 120
_TABLES = ("prices", "kinds", "places")

#: The last values of these outputs together contain each id once.
AGGREGATE_OUTPUTS = ("ids", "memory", "windows", "sessions", "suppressed")
#: These outputs have one record for each id.
COUNTING_OUTPUTS = ("priced", "placed", "paired", "seen")
#: The last value of each id in this output is the id.
TABLED = "tabled"
#: All outputs.
ALL = frozenset({*AGGREGATE_OUTPUTS, *COUNTING_OUTPUTS, TABLED})


def place_of(value: str) -> str:
    """The key of an id in the joined tables."""
    return f"n{int(value) % GROUPS}"


def group_of(value: str) -> str:
    """The group of an id."""
    return f"g{int(value) % GROUPS}"


def _add(_: str, value: str, known: str) -> str:
    return value if not known else f"{known} {value}"


def _merge(_: str, one: str, other: str) -> str:
    return " ".join(each for each in (one, other) if each)


class Seen(Processor[str, str, str, str]):
    """Outputs the number of occurrences of an id, counted in stores that only processors have."""

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
    """The topology, whose topic names begin with a prefix."""
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
    """The application on its own topics, its input, and the state of its ids."""

    def __init__(self, kafka: EmbeddedKafka, partitions: int = 4) -> None:
        self.bootstrap = kafka.bootstrap_servers
        self.id = unique("moving")
        self._partitions = partitions
        self._places = BrokerTopics(self.bootstrap)
        names = ("records", "others", *_TABLES, *AGGREGATE_OUTPUTS, *COUNTING_OUTPUTS, TABLED)
        self._places.create({self.topic(name): partitions for name in names})
        # In the past, but within the broker's retention.
        self._start_ms = int(time.time()) * 1_000 - 5 * 3_600_000
        #: The number of written ids, which are 0, 1, 2, ...
        self.written = 0
        self._places.write(
            keyed(self.topic(table), partitions, key, key, self._start_ms - BLOCK_PAUSE_MS)
            for table in _TABLES
            for key in (f"n{number}" for number in range(GROUPS))
        )

    def topic(self, name: str) -> str:
        """The full name of a topic."""
        return f"{self.id}-{name}"

    def write(self, count: int) -> None:
        """Write this many new ids, acknowledged."""
        first = self.written
        self._write(range(first, first + count))
        self.written += count

    def _write(self, ids: Sequence[int]) -> None:
        self._places.write(
            keyed(self.topic(topic), self._partitions, str(each), str(each), at_ms)
            for each in ids
            for at_ms in [self._time_of(each)]
            for topic in ("records", "others")
        )

    def _time_of(self, each: int) -> int:
        later = LATER_MS if each < 0 else each * ID_EACH_MS + each // BLOCK * BLOCK_PAUSE_MS
        return self._start_ms + later

    def close_windows(self) -> None:
        """Advance the time of each partition beyond all grace periods, when no record is in
        flight that would be late then."""
        self._wait_complete(ALL - {"suppressed"})
        self._write([*range(-2 * GROUPS, 0)])

    @contextmanager
    def continuous_input(self, pause_s: float = 0.1) -> Iterator[None]:
        """Write 20 ids after each pause until the end of the block."""
        with background(lambda: self.write(20), pause_s):
            yield

    def wait_complete(self) -> None:
        """Wait until each output contains every written id; windows must be closed."""
        self._wait_complete(ALL)

    def _wait_complete(self, outputs: Set[str]) -> None:
        # One output at a time: each has tens of thousands of records.
        for output in sorted(outputs):
            wait_for(
                lambda output=output: not self.lost({output}),  # type: ignore[misc]
                _COMPLETE_S,
                lambda output=output: f"no lost ids: {_some(self.lost({output}))}",  # type: ignore[misc]
            )

    def id_counts(self, outputs: Set[str] = ALL) -> dict[str, Counter[str]]:
        """The number of occurrences of each id in the outputs: in the last values of aggregates,
        and in all records of others."""
        id_counts: dict[str, Counter[str]] = {}
        for name in sorted(outputs):
            records = [
                ((key or b"").decode(), (value or b"").decode())
                for key, value in read_all(self.bootstrap, self.topic(name))
            ]
            last = records if name in COUNTING_OUTPUTS else list(dict(records).items())
            ids = (each for _, value in last for each in _ids_of(name, value))
            id_counts[name] = Counter(each for each in ids if not each.startswith("-"))
        return id_counts

    def lost(self, outputs: Set[str] = ALL) -> dict[str, set[str]]:
        """The missing ids of incomplete outputs."""
        every = {str(each) for each in range(self.written)}
        lost = {name: every - set(ids) for name, ids in self.id_counts(outputs).items()}
        return {name: ids for name, ids in lost.items() if ids}

    def repeated(self) -> dict[str, dict[str, int]]:
        """Duplicate and unknown ids by output."""
        every = {str(each) for each in range(self.written)}
        repeated = {
            name: {each: often for each, often in ids.items() if often > 1 or each not in every}
            for name, ids in self.id_counts().items()
        }
        return {name: ids for name, ids in repeated.items() if ids}


def _some(lost: Mapping[str, Set[str]]) -> dict[str, list[str]]:
    return {name: sorted(ids)[:20] for name, ids in lost.items()}


def _ids_of(name: str, value: str) -> list[str]:
    return value.split() if name in AGGREGATE_OUTPUTS else [value]
