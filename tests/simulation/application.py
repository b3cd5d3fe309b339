"""The application that is simulated: unique ids go in, and every place that they pass keeps them.

    in ──► remember (store `seen`) ──► by group ──► fold (store `folded`) ──► out
                                          │
                                          └───────► fold by window (store `windowed`) ──► windows

Both sub-topologies have state with changelogs. Each store keeps for each key the list of the ids it
has seen, so that one lost or repeated can be told from its list.
"""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

import orjson

from millstream import (
    EXACTLY_ONCE_V2,
    KStream,
    Materialized,
    Processor,
    ProcessorContext,
    Record,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
)
from millstream.serdes import JSON, STRING
from millstream.state.keyvalue.store import KeyValueStore

APPLICATION: Final = "sim"
INPUT: Final = "in"
OUTPUT: Final = "out"
WINDOWS: Final = "windows"
REPARTITION: Final = f"{APPLICATION}-folded-repartition"
SEEN: Final = f"{APPLICATION}-seen-changelog"
FOLDED: Final = f"{APPLICATION}-folded-changelog"
WINDOWED: Final = f"{APPLICATION}-windowed-changelog"
WINDOW_MS: Final = 10_000
KEYS: Final = 8
GROUPS: Final = 5

#: What must hold an id before the offset of the record that brought it is committed.
CAUSED: Final = {INPUT: (REPARTITION, SEEN), REPARTITION: (FOLDED, WINDOWED, OUTPUT, WINDOWS)}


def key_of(record_id: int) -> str:
    """The key of an input record."""
    return f"k{record_id * 7 % KEYS}"


def group_of(record_id: int) -> str:
    """The key under which it is folded."""
    return f"g{record_id * 3 % GROUPS}"


async def answer(value: Any) -> Any:
    """What is asked beside the loop; the answer is the question, some time later."""
    return value


@dataclass(frozen=True)
class Asking:
    """Where and how the application asks beside its loop.

    Args:
        before: whether it asks before the store `seen`.
        behind: whether it asks behind it, before the repartition topic.
        at_last: whether it asks behind the store `folded`, before the output.
        ordering: of the answers.
        concurrency: how many questions there are at a time.
    """

    before: bool
    behind: bool
    at_last: bool
    ordering: Literal["key", "none", "partition"]
    concurrency: int

    @classmethod
    def chosen(cls, chance: random.Random) -> Asking:
        """One of them."""
        before, behind, at_last = chance.choice(
            (
                (True, False, False),
                (True, False, False),
                (False, True, False),
                (False, False, True),
                (True, True, False),
                (True, False, True),
            )
        )
        return cls(
            before,
            behind,
            at_last,
            ordering=chance.choice(("key", "key", "none", "partition")),
            concurrency=chance.choice((1, 3, 20)),
        )

    def line_of(self, record_id: int) -> Hashable:
        """What keeps its order from the input to the repartition topic, beside the partition; the
        id itself where nothing does."""
        if self.ordering == "partition" or not (self.before or self.behind):
            return None
        if self.ordering == "none":
            return record_id
        return (self.before and key_of(record_id), self.behind and group_of(record_id))


class Remember(Processor[str, Any, str, Any]):
    """Keeps the ids of each key, and sends each on to its group."""

    seen: KeyValueStore[str, Any]

    def init(self, context: ProcessorContext[str, Any]) -> None:
        super().init(context)
        self.seen = context.get_state_store("seen")

    def process(self, record: Record[str, Any]) -> None:
        self.seen.put(record.key, [*(self.seen.get(record.key) or []), record.value])
        self.context.forward(record.with_key(group_of(record.value)))


@dataclass(frozen=True)
class Shape:
    """How the application of one history is made.

    Args:
        partitions: of the input topic.
        on_disk: whether the stores are in RocksDB, or in memory.
        caching: whether updates are held back until a commit.
        standbys: copies of each task.
        static: whether members have a `group.instance.id`.
        commit_interval_ms: between commits.
        max_poll_records: at a poll, and in a batch.
        exactly_once: the processing guarantee.
        asking: where it asks beside its loop; None for nowhere.
        uncommitted_max_bytes: bytes of writes that may wait for a commit, in each instance.
    """

    partitions: int
    on_disk: bool
    caching: bool
    standbys: int
    static: bool
    commit_interval_ms: int
    max_poll_records: int
    exactly_once: bool = False
    asking: Asking | None = None
    uncommitted_max_bytes: int = 64 << 20

    @classmethod
    def chosen(cls, chance: random.Random, *, exactly_once: bool = False) -> Shape:
        """One of them."""
        return cls(
            partitions=chance.choice((2, 2, 3)),
            on_disk=chance.random() < 0.15,
            caching=chance.random() < 0.5,
            standbys=chance.choice((0, 1)),
            static=chance.random() < 0.2,
            commit_interval_ms=chance.choice((100, 500, 2_000)),
            max_poll_records=chance.choice((3, 20, 1_000)),
            exactly_once=exactly_once,
        )

    def topology(self) -> Topology:
        """What is computed."""
        kind: Any = "rocksdb" if self.on_disk else "in_memory"
        supplier = Stores.persistent_key_value if self.on_disk else Stores.in_memory_key_value
        seen = Stores.key_value_builder(supplier("seen"), STRING, JSON).with_caching(self.caching)
        builder = StreamsBuilder()
        builder.add_state_store(seen)
        asking = self.asking
        stream: KStream[str, Any] = builder.stream(INPUT, key=STRING, value=JSON)
        if asking is not None and asking.before:
            stream = self._asked(stream)
        stream = stream.process(Remember, stores=["seen"])
        if asking is not None and asking.behind:
            stream = self._asked(stream)
        grouped = stream.group_by_key(key=STRING, value=JSON, name="folded")
        kept = Materialized("folded", kind=kind, key=STRING, value=JSON, caching=self.caching)
        folded = grouped.aggregate(list, _fold, store=kept).to_stream()
        if asking is not None and asking.at_last:
            # The last one of a key is to be the last.
            folded = self._asked(folded, "key" if asking.ordering == "none" else asking.ordering)
        folded.to(OUTPUT, key=STRING, value=JSON)
        windows = TimeWindows(timedelta(milliseconds=WINDOW_MS), grace=timedelta(days=1))
        kept = Materialized(
            "windowed",
            kind=kind,
            key=STRING,
            value=JSON,
            caching=self.caching,
            retention=timedelta(days=2),
        )
        (
            grouped.windowed_by(windows)
            .aggregate(list, _fold, store=kept)
            .to_stream()
            .map(lambda windowed, ids: (f"{windowed.key}@{windowed.window.start_ms}", ids))
            .to(WINDOWS, key=STRING, value=JSON)
        )
        return builder.build()

    def _asked(self, stream: KStream[str, Any], ordering: Any = None) -> KStream[str, Any]:
        assert self.asking is not None
        return stream.map_async(
            answer,
            concurrency=self.asking.concurrency,
            ordering=ordering or self.asking.ordering,
        )

    def config(self, state_dir: str, instance: str, threads: int) -> StreamsConfig:
        """The settings of one instance."""
        consumer: dict[str, Any] = {
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 1_500,
            "max.poll.interval.ms": 12_000,
            "request.timeout.ms": 8_000,
            "max.poll.records": self.max_poll_records,
            "auto.offset.reset": "earliest",
        }
        if self.static:
            consumer["group.instance.id"] = instance
        return StreamsConfig(
            application_id=APPLICATION,
            bootstrap_servers="sim:9092",
            client_id=instance,
            state_dir=state_dir,
            num_stream_threads=threads,
            num_standby_replicas=self.standbys,
            commit_interval_ms=self.commit_interval_ms,
            poll_ms=500,
            task_timeout_ms=20_000,
            acceptable_recovery_lag=10,
            probing_rebalance_interval_ms=60_000,
            repartition_purge_interval_ms=5_000,
            statestore_uncommitted_max_bytes=self.uncommitted_max_bytes,
            consumer=consumer,
            **self._guarantee(),
        )

    def _guarantee(self) -> dict[str, Any]:
        if not self.exactly_once:
            return {"producer": {"delivery.timeout.ms": 15_000, "request.timeout.ms": 5_000}}
        return {
            "processing_guarantee": EXACTLY_ONCE_V2,
            "producer": {"transaction.timeout.ms": 10_000, "request.timeout.ms": 5_000},
        }


def _fold(key: str, record_id: Any, ids: list[int]) -> list[int]:
    return [*ids, record_id]


def ids_in(topic: str, value: bytes | None) -> list[int]:
    """The ids that a record of any of the topics tells of."""
    if value is None:
        return []
    if topic in (FOLDED, WINDOWED):
        # Timestamped stores put eight bytes before the value, which their changelogs leave out.
        value = value[value.index(b"[") :]
    found = orjson.loads(value)
    return found if isinstance(found, list) else [found]
