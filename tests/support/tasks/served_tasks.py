"""An application for the HTTP server: real tasks and stores, without Spark and Kafka."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Self, cast

from msgspec.structs import replace

from millstream import (
    Materialized,
    SessionWindows,
    StateQueryRequest,
    StateQueryResult,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
)
from millstream.application.console.topology_graph import stores_of
from millstream.clock import ManualClock
from millstream.errors import ConfigError, StreamsError, ThreadUnavailableError
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.query.key_routing import StoreRouting
from millstream.query.local_threads import LocalThreads
from millstream.query.partition_counts import ClusterInfo
from millstream.query.remote_instances import RemoteInstances, query_responder
from millstream.query.state_queries import StateQueries
from millstream.query.store_catalog import StoreCatalog
from millstream.query.streams_metadata import KeyQueryMetadata, LagInfo, StreamsMetadata
from millstream.query.views import QueryableStoreType, S
from millstream.runtime.queries.query_messages import QueryStore, ThreadQueryResult
from millstream.runtime.queries.store_positions import upstream_of_stores
from millstream.runtime.queries.store_queries import StoreQueries
from millstream.runtime.states.thread_states import ClientState, OwnedTask, ThreadState
from millstream.serdes import JSON, LONG, STRING
from millstream.server.backend import Health
from millstream.state.queries.codec import StoreCodec
from millstream.testing.stepping import SteppingDriver

CONFIG = StreamsConfig(
    application_id="shop", bootstrap_servers="not-used:9092", commit_interval_ms=3_600_000
)


def shop() -> Topology:
    """A store of each kind: counts, carts, minutes, visits, prices, numbers and rates."""
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key=STRING, value=STRING).group_by_key()
    clicks.count(store="counts")
    clicks.aggregate(
        list, lambda key, value, cart: [*cart, value], store=Materialized("carts", value=JSON)
    )
    clicks.windowed_by(TimeWindows(timedelta(minutes=1))).count(store="minutes")
    clicks.windowed_by(SessionWindows(timedelta(minutes=1))).count(store="visits")
    history = Stores.persistent_versioned("prices", timedelta(hours=1))
    builder.table("prices-in", key=STRING, value=LONG, store=history)
    builder.table("numbers-in", key=LONG, value=STRING, store="numbers")
    builder.global_table("rates-in", key=STRING, value=LONG, store="rates")
    return builder.build()


class QueriedTask(SteppingDriver):
    """A task that answers queries like a task of a stream thread."""

    def __init__(self, topology: Topology, config: StreamsConfig = CONFIG) -> None:
        clock = ManualClock(0)
        super().__init__(topology, config, clock)
        upstream = upstream_of_stores([self._subtopology], config.application_id)
        self._answers = StoreQueries(upstream, lambda: [self._task], self._global.find, clock)

    def write(self, topic: str, key: bytes | None, value: bytes | None, time: int = 0) -> None:
        """Process one record."""
        self.feed(topic, key, value, time)
        while self.is_ready:
            self.step()
        self.deliver()

    def answer(self, question: Any) -> Any:
        """Answer a query; raises the error of the answer, if it is one."""
        answer = self._answers.answer(question)
        if isinstance(answer, StreamsError):
            raise answer
        return answer


class _Admin:
    """A cluster whose topics all have the same number of partitions."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def partition_counts(self, topics: Iterable[str], timeout_ms: int) -> Mapping[str, int]:
        return dict.fromkeys(topics, self._partitions)

    def close(self) -> None: ...


class ServedTasks:
    """Implements `server.backend.ServerBackend` for `shop()`: one thread per partition."""

    def __init__(self, partitions: int = 1) -> None:
        self._topology = shop()
        self.tasks = [QueriedTask(self._topology) for _ in range(partitions)]
        self.catalog = StoreCatalog(self._topology, CONFIG)
        self.state = ClientState.RUNNING
        self.is_live = True
        #: The properties, if this is a subscription.
        self.property_values: dict[str, Any] | None = None
        #: The number of key-value pairs that stores have returned.
        self.pairs_read = 0
        self._turn = threading.Lock()
        self._local_threads = LocalThreads(self._threads, self._ask_thread)
        cluster = ClusterInfo(CONFIG, lambda _: cast(ClusterAdmin, _Admin(partitions)))
        self._routing = StoreRouting(self.catalog, cluster, lambda: self.state, None)
        self._queries = StateQueries(
            self.catalog, self._local_threads, self._routing, RemoteInstances(), lambda: self.state
        )
        self._answer = query_responder(self._local_threads, self.catalog)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for task in self.tasks:
            task.close()

    def click(self, keys: Iterable[str], time: int = 0) -> None:
        """Write each key to the partition given by its length."""
        for key in keys:
            task = self.tasks[len(key) % len(self.tasks)]
            task.write("clicks", key.encode(), b"click", time)

    def _threads(self) -> Mapping[str, tuple[ThreadState, Mapping[str, OwnedTask]]]:
        parts = self._topology._subtopologies()
        return {
            str(number): (
                ThreadState.RUNNING,
                {f"{part.id}_{number}": OwnedTask("RUNNING") for part in parts},
            )
            for number in range(len(self.tasks))
        }

    def _ask_thread(self, thread: str, question: Any) -> Future[Any]:
        reply: Future[Any] = Future()
        try:
            reply.set_result(self._answer_for(thread, question))
        except StreamsError as error:
            reply.set_exception(error)
        return reply

    def _answer_for(self, thread: str, question: Any) -> Any:
        """Answer for one thread: replaces its partition by 0, which is the only one of its task."""
        number = int(thread)
        if not self.is_live:
            raise ThreadUnavailableError(f"{thread} is gone.")
        if isinstance(question, QueryStore) and question.partitions is not None:
            assigned = frozenset({0}) if number in question.partitions else frozenset()
            question = replace(question, partitions=assigned)
        with self._turn:
            answer = self.tasks[number].answer(question)
        if isinstance(answer, ThreadQueryResult):
            tasks = tuple(
                each if each.role == "GLOBAL" else each._replace(partition=number)
                for each in answer.tasks
            )
            self.pairs_read += sum(len(each.page) for each in tasks)
            return replace(answer, tasks=tasks)
        return answer

    # --- interface of the server
    # -------------------------------------------------------------------

    def health(self) -> Health:
        return Health(self.is_live, self.state is ClientState.RUNNING, self.state.name, "why not")

    def console_state(self) -> Mapping[str, Any]:
        return {"application": {"id": "shop", "state": self.state.name}}

    def threads(self) -> Sequence[Mapping[str, Any]]:
        return [
            {
                "thread_name": f"shop-StreamThread-{name}",
                "thread_state": state.name,
                "active_tasks": [{"task_id": t, "state": each.state} for t, each in tasks.items()],
                "standby_tasks": [],
                "host": "here",
                "pid": 1,
                "stall": None,
                "uncommitted_ms": None,
                "client": None,
            }
            for name, (state, tasks) in self._threads().items()
        ]

    def topology(self) -> Mapping[str, Any]:
        description = self._topology.describe()
        return {**description.to_dict(), "text": str(description)}

    def stores(self) -> Sequence[Mapping[str, Any]]:
        return [asdict(each) for each in stores_of(self._topology, CONFIG)]

    def codec_of(self, store: str) -> StoreCodec | None:
        return self.catalog.find(store).codec

    def is_global(self, store: str) -> bool:
        return self.catalog.find(store).is_global

    def partitions_of(self, store: str) -> Sequence[int] | None:
        return None if self.is_global(store) else range(len(self.tasks))

    def locate_key(self, store: str, key: Any) -> KeyQueryMetadata | None:
        return self._routing.key_metadata(store, key, None, None)

    def instances(self) -> Sequence[StreamsMetadata]:
        return self._routing.all_clients()

    def lags(self) -> Mapping[str, Mapping[int, LagInfo]]:
        return {"counts": {0: LagInfo(40, 42)}}

    def answer_peer(self, document: bytes) -> bytes:
        return self._answer(document)

    def metrics_text(self) -> str:
        return "kafka_streams_up 1\n"

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        return self._queries.query(request)

    def store(
        self,
        name: str,
        kind: QueryableStoreType[S],
        partition: int | None,
        *,
        stale: bool,
        begin: bytes | None = None,
    ) -> S:
        return self._queries.store(name, kind, partition, stale=stale, begin=begin)

    def properties(self) -> Mapping[str, Any] | None:
        return self.property_values

    def change_properties(self, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if self.property_values is None:
            return None
        if unknown := given.keys() - self.property_values.keys():
            raise ConfigError(f"There is no property {sorted(unknown)[0]!r}.")
        self.property_values |= given
        return self.property_values
