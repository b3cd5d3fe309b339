"""The simulated application. Every topic and store on the way of a record keeps its unique id.

    in ──► remember (store `seen`) ──► by group ──► fold (store `folded`) ──► out
                                          │
                                          └───────► fold by window (store `windowed`) ──► windows

Both sub-topologies have state with changelogs. Each store keeps the list of ids for each key, so
that lost or repeated ids are visible in the list.
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
from millstream.state.keyvalue.key_value_store import KeyValueStore

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

#: The topics that must contain an id before the offset of its record is committed.
CAUSED: Final = {INPUT: (REPARTITION, SEEN), REPARTITION: (FOLDED, WINDOWED, OUTPUT, WINDOWS)}


def key_of(record_id: int) -> str:
    """The key of an input record."""
    return f"k{record_id * 7 % KEYS}"


def group_of(record_id: int) -> str:
    """The key under which an input record is aggregated."""
    return f"g{record_id * 3 % GROUPS}"


async def echo(value: Any) -> Any:
    """The concurrent call: return the value after a while."""
    return value


@dataclass(frozen=True)
class AsyncCallPlan:
    """The positions and settings of `map_async` in the application.

    Args:
        before_store: whether there is a call before the store `seen`.
        after_store: whether there is a call between this store and the repartition topic.
        before_output: whether there is a call between the store `folded` and the output.
        ordering: of the results.
        concurrency: the maximum number of calls at a time.
    """

    before_store: bool
    after_store: bool
    before_output: bool
    ordering: Literal["key", "none", "partition"]
    concurrency: int

    @classmethod
    def chosen(cls, rng: random.Random) -> AsyncCallPlan:
        """Choose at random."""
        before_store, after_store, before_output = rng.choice(
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
            before_store,
            after_store,
            before_output,
            ordering=rng.choice(("key", "key", "none", "partition")),
            concurrency=rng.choice((1, 3, 20)),
        )

    def order_key(self, record_id: int) -> Hashable:
        """The key within which records keep their order up to the repartition topic; the id itself
        if they keep none."""
        if self.ordering == "partition" or not (self.before_store or self.after_store):
            return None
        if self.ordering == "none":
            return record_id
        return (self.before_store and key_of(record_id), self.after_store and group_of(record_id))


class Remember(Processor[str, Any, str, Any]):
    """Stores the ids of each key and forwards each id to its group."""

    seen: KeyValueStore[str, Any]

    def init(self, context: ProcessorContext[str, Any]) -> None:
        super().init(context)
        self.seen = context.get_state_store("seen")

    def process(self, record: Record[str, Any]) -> None:
        self.seen.put(record.key, [*(self.seen.get(record.key) or []), record.value])
        self.context.forward(record.with_key(group_of(record.value)))


@dataclass(frozen=True)
class Shape:
    """The topology and settings of a history.

    Args:
        partitions: of the input topic.
        on_disk: whether the stores are in RocksDB, or in memory.
        caching: whether the stores have record caches.
        standbys: the number of standby replicas.
        static: whether members have a `group.instance.id`.
        commit_interval_ms: `commit.interval.ms`.
        max_poll_records: `max.poll.records`, also the maximum size of a batch.
        exactly_once: the processing guarantee.
        async_calls: the concurrent calls, if any.
        uncommitted_max_bytes: the limit of uncommitted writes of each instance.
    """

    partitions: int
    on_disk: bool
    caching: bool
    standbys: int
    static: bool
    commit_interval_ms: int
    max_poll_records: int
    exactly_once: bool = False
    async_calls: AsyncCallPlan | None = None
    uncommitted_max_bytes: int = 64 << 20

    @classmethod
    def chosen(cls, rng: random.Random, *, exactly_once: bool = False) -> Shape:
        """Choose at random."""
        return cls(
            partitions=rng.choice((2, 2, 3)),
            on_disk=rng.random() < 0.15,
            caching=rng.random() < 0.5,
            standbys=rng.choice((0, 1)),
            static=rng.random() < 0.2,
            commit_interval_ms=rng.choice((100, 500, 2_000)),
            max_poll_records=rng.choice((3, 20, 1_000)),
            exactly_once=exactly_once,
        )

    def topology(self) -> Topology:
        """Build the topology."""
        kind: Any = "rocksdb" if self.on_disk else "in_memory"
        supplier = Stores.persistent_key_value if self.on_disk else Stores.in_memory_key_value
        seen = Stores.key_value_builder(supplier("seen"), STRING, JSON).with_caching(self.caching)
        builder = StreamsBuilder()
        builder.add_state_store(seen)
        async_calls = self.async_calls
        stream: KStream[str, Any] = builder.stream(INPUT, key=STRING, value=JSON)
        if async_calls is not None and async_calls.before_store:
            stream = self._with_async_call(stream)
        stream = stream.process(Remember, stores=["seen"])
        if async_calls is not None and async_calls.after_store:
            stream = self._with_async_call(stream)
        grouped = stream.group_by_key(key=STRING, value=JSON, name="folded")
        kept = Materialized("folded", kind=kind, key=STRING, value=JSON, caching=self.caching)
        folded = grouped.aggregate(list, _fold, store=kept).to_stream()
        if async_calls is not None and async_calls.before_output:
            # The last result of a key must stay the last one.
            folded = self._with_async_call(
                folded, "key" if async_calls.ordering == "none" else async_calls.ordering
            )
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

    def _with_async_call(
        self, stream: KStream[str, Any], ordering: Any = None
    ) -> KStream[str, Any]:
        assert self.async_calls is not None
        return stream.map_async(
            echo,
            concurrency=self.async_calls.concurrency,
            ordering=ordering or self.async_calls.ordering,
        )

    def config(self, state_dir: str, instance: str, threads: int) -> StreamsConfig:
        """The configuration of one instance."""
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
    """The ids in the value of a record."""
    if value is None:
        return []
    if topic in (FOLDED, WINDOWED):
        # Values of timestamped stores start with eight bytes that their changelogs leave out.
        value = value[value.index(b"[") :]
    found = orjson.loads(value)
    return found if isinstance(found, list) else [found]
