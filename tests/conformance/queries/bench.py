"""The application of a scenario in one task, asked as `KafkaStreams` is, without a broker."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Self

from conformance.queries.application import topology
from conformance.queries.comparing import Answer, error_names, query_of, told, told_results
from conformance.queries.scenarios import Scenario, Step
from support.tasks.served_tasks import QueriedTask

from millstream import StreamsConfig
from millstream.errors import StreamsError
from millstream.query.asking import OwnThreads
from millstream.query.cluster import Cluster
from millstream.query.peers import Instances
from millstream.query.requests.answers import StateQueryRequest
from millstream.query.requests.position import Position, PositionBound
from millstream.query.routing import Routing
from millstream.query.state_queries import StateQueries
from millstream.query.store_types import QueryableStoreType, QueryableStoreTypes
from millstream.query.stores import KnownStore, KnownStores
from millstream.runtime.states import ClientState, OwnedTask, ThreadState
from millstream.serdes import STRING

TYPES: dict[str, QueryableStoreType[Any]] = {
    "key_value": QueryableStoreTypes.key_value(),
    "timestamped_key_value": QueryableStoreTypes.timestamped_key_value(),
    "window": QueryableStoreTypes.window(),
    "timestamped_window": QueryableStoreTypes.timestamped_window(),
    "session": QueryableStoreTypes.session(),
}


class _OnePartition(Cluster):
    """A cluster that nobody needs to ask."""

    def __init__(self) -> None: ...

    def partitions_of(self, store: KnownStore) -> int | None:
        return 1


class QueryBench(QueriedTask):
    """One task with the stores of a scenario, which commits when it is told to.

    Args:
        scenario: of one partition and one instance.
    """

    def __init__(self, scenario: Scenario) -> None:
        config = StreamsConfig(
            application_id=scenario["name"],
            bootstrap_servers="not-used:9092",
            commit_interval_ms=3_600_000,
        )
        super().__init__(topology(scenario), config)
        stores, cluster = KnownStores(self._topology, config), _OnePartition()
        own = OwnThreads(
            lambda: {"thread": (ThreadState.RUNNING, {"0_0": OwnedTask("RUNNING")})}, self._asked
        )
        routing = Routing(stores, cluster, lambda: ClientState.RUNNING, None)
        self.queries = StateQueries(stores, own, routing, Instances(), lambda: ClientState.RUNNING)

    def __enter__(self) -> Self:
        return self

    def take(self, step: Step) -> None:
        """Feed records, or commit."""
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

    def _asked(self, _: str, question: Any) -> Future[Any]:
        reply: Future[Any] = Future()
        try:
            reply.set_result(self.answer(question))
        except StreamsError as error:
            reply.set_exception(error)
        return reply


def ask(streams: Any, step: Step, prefix: str = "") -> Answer:
    """What an application, or the bench's queries, say to a step, in the recording's words.

    Args:
        streams: has `query` and `store`.
        step: what is asked.
        prefix: of the names of topics.
    """
    try:
        if "view" in step:
            return {"value": told(_called(streams, step))}
        return told_results(streams.query(request_of(step, prefix)), prefix)
    except Exception as error:
        return {"error": error_names(error), "message": str(error)}


def _called(streams: Any, step: Step) -> Any:
    view = streams.store(
        step["store"], TYPES[step["view"]], step.get("partition"), stale=step.get("stale", False)
    )
    serdes = (STRING,) if step["call"] == "prefix_scan" else ()
    return getattr(view, step["call"])(*step["arguments"], *serdes)


def request_of(step: Step, prefix: str = "") -> StateQueryRequest:
    """The request that a step is."""
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
