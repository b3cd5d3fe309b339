"""The application of a scenario in one task, with the queries of `KafkaStreams`, but without a
broker."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Self

from conformance.queries.application import topology
from conformance.queries.comparing import (
    Answer,
    error_names,
    query_of,
    recorded_results,
    recorded_value,
)
from conformance.queries.scenarios import Scenario, Step
from support.tasks.served_tasks import QueriedTask

from millstream import StreamsConfig
from millstream.errors import StreamsError
from millstream.query.key_routing import StoreRouting
from millstream.query.local_threads import LocalThreads
from millstream.query.partition_counts import ClusterInfo
from millstream.query.remote_instances import RemoteInstances
from millstream.query.state_queries import StateQueries
from millstream.query.store_catalog import CatalogStore, StoreCatalog
from millstream.query.views import QueryableStoreType, QueryableStoreTypes
from millstream.runtime.states.thread_states import ClientState, OwnedTask, ThreadState
from millstream.serdes import STRING
from millstream.state.queries.requests.position import Position, PositionBound
from millstream.state.queries.requests.query_results import StateQueryRequest

TYPES: dict[str, QueryableStoreType[Any]] = {
    "key_value": QueryableStoreTypes.key_value(),
    "timestamped_key_value": QueryableStoreTypes.timestamped_key_value(),
    "window": QueryableStoreTypes.window(),
    "timestamped_window": QueryableStoreTypes.timestamped_window(),
    "session": QueryableStoreTypes.session(),
}


class _OnePartition(ClusterInfo):
    """A cluster in which every topic has one partition."""

    def __init__(self) -> None: ...

    def partitions_of(self, store: CatalogStore) -> int | None:
        return 1


class QueryBench(QueriedTask):
    """One task with the stores of a scenario; only commits on request.

    Args:
        scenario: a scenario with one partition and one instance.
    """

    def __init__(self, scenario: Scenario) -> None:
        config = StreamsConfig(
            application_id=scenario["name"],
            bootstrap_servers="not-used:9092",
            commit_interval_ms=3_600_000,
        )
        super().__init__(topology(scenario), config)
        stores, cluster = StoreCatalog(self._topology, config), _OnePartition()
        own = LocalThreads(
            lambda: {"thread": (ThreadState.RUNNING, {"0_0": OwnedTask("RUNNING")})},
            self._answer_query,
        )
        routing = StoreRouting(stores, cluster, lambda: ClientState.RUNNING, None)
        self.queries = StateQueries(
            stores, own, routing, RemoteInstances(), lambda: ClientState.RUNNING
        )

    def __enter__(self) -> Self:
        return self

    def execute(self, step: Step) -> None:
        """Execute a step: write records, or commit."""
        if step["do"] == "feed":
            for record in step["records"]:
                self._write(**record)
        elif step["do"] == "commit":
            self._write("in", 0, "-", '[["commit"]]')
            self.commit()

    def _write(
        self, topic: str, partition: int, key: str = "-", value: str | None = None, time: int = 0
    ) -> None:
        self.write(topic, key.encode(), None if value is None else value.encode(), time)

    def _answer_query(self, _: str, query: Any) -> Future[Any]:
        reply: Future[Any] = Future()
        try:
            reply.set_result(self.answer(query))
        except StreamsError as error:
            reply.set_exception(error)
        return reply


def answer_step(streams: Any, step: Step, prefix: str = "") -> Answer:
    """Return the answer of an application, or of the bench's queries, to a step, in recorded form.

    Args:
        streams: has `query` and `store`.
        step: the query.
        prefix: of the names of topics.
    """
    try:
        if "view" in step:
            return {"value": recorded_value(_call_view(streams, step))}
        return recorded_results(streams.query(request_of(step, prefix)), prefix)
    except Exception as error:
        return {"error": error_names(error), "message": str(error)}


def _call_view(streams: Any, step: Step) -> Any:
    view = streams.store(
        step["store"], TYPES[step["view"]], step.get("partition"), stale=step.get("stale", False)
    )
    serdes = (STRING,) if step["call"] == "prefix_scan" else ()
    return getattr(view, step["call"])(*step["arguments"], *serdes)


def request_of(step: Step, prefix: str = "") -> StateQueryRequest:
    """Create the request of a step."""
    request = StateQueryRequest.in_store(step["store"]).with_query(query_of(step["query"]))
    if "bound" in step:
        offsets = {
            f"{prefix}{topic}": {int(n): offset for n, offset in partitions.items()}
            for topic, partitions in step["bound"].items()
        }
        request = request.with_position_bound(PositionBound.at(Position(offsets)))
    if "partitions" in step:
        request = request.with_partitions(step["partitions"])
    request = request.require_active() if step.get("active") else request
    return request.enable_execution_info() if step.get("info") else request
