"""The document behind the console: everything that its page shows, but for the contents of stores.

Numbers that nobody has counted yet, or that this version does not count, are null; lists are empty
where there is nothing. Times are milliseconds since the epoch, names end in their units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Protocol

from millstream.application.metadata import TaskMetadata, ThreadMetadata
from millstream.application.story.story import Told
from millstream.application.supervisor import ThreadSupervisor
from millstream.application.view.graph import Graph, GraphEdge, graph_of
from millstream.application.view.numbers import DataFrameNumbers, Meter, Numbers, numbers_of
from millstream.application.view.stores import stores_of
from millstream.application.view.subscription import (
    SubscriptionView,
    WatchedSubscription,
    subscription_of,
)
from millstream.clock import Clock, SystemClock
from millstream.config import StreamsConfig
from millstream.errors import StreamsError
from millstream.metrics.values import Metrics
from millstream.runtime.states import ClientState
from millstream.runtime.topology_topics import has_tasks

#: Counts up when something is left out or means something else.
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task of a thread.

    Args:
        id: for example `0_1`.
        state: for example `RUNNING`.
        records_per_s: None for a standby.
    """

    id: str
    state: str
    records_per_s: float | None


@dataclass(frozen=True, slots=True)
class ThreadView:
    """A stream thread.

    Args:
        name: in full.
        label: short, unique in this application instance.
        state: for example `RUNNING`.
        host: where it runs, None before it does.
        pid: the process.
        client: the process id of the client that it is of: one for each host.
        records_per_s: of all its tasks.
        active: the tasks that it processes, or is about to.
        standby: the tasks whose state it keeps beside.
        stall: where it hangs: `silent_ms`, `place` and `stack`; None while it does not.
        uncommitted_ms: for how long it has processed records without a commit; None while that is
            not too long.
    """

    name: str
    label: str
    state: str
    host: str | None
    pid: int | None
    client: str | None
    records_per_s: float
    active: tuple[TaskView, ...]
    standby: tuple[TaskView, ...]
    stall: Mapping[str, Any] | None
    uncommitted_ms: int | None


@dataclass(frozen=True, slots=True)
class _Way:
    """An edge, and what the graph around it says of the records that go along it.

    Args:
        edge: which one.
        is_only: whether all that comes to its target comes this way.
        only_of: the sub-topology that reads no other topic; None if that is not so.
    """

    edge: GraphEdge
    is_only: bool
    only_of: int | None


class Watched(Protocol):
    """`KafkaStreams`, as far as it is looked at from below."""

    @property
    def state(self) -> ClientState:
        """Where it is."""

    @property
    def is_paused(self) -> bool:
        """Whether processing is paused."""

    @property
    def error(self) -> StreamsError | None:
        """What made it stop, if anything did."""

    def metrics(self) -> Metrics:
        """What the threads reported last."""

    def metadata_for_local_threads(self) -> list[ThreadMetadata]:
        """The stream threads."""


class ConsoleDocument:
    """Makes the document of an application, again and again; rates are between those moments.

    Usable on several threads, if they take turns.

    Args:
        streams: the application.
        config: its settings.
        supervisor: its threads.
        subscription: gives the subscription that it is of, None if it is none.
        clock: for rates.

    Attributes:
        stores: what is known of the stores before anything runs, by name.
    """

    def __init__(
        self,
        streams: Watched,
        config: StreamsConfig,
        supervisor: ThreadSupervisor,
        subscription: Callable[[], WatchedSubscription | None] = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        self._streams = streams
        self._config = config
        self._supervisor = supervisor
        self._subscription = subscription
        self._clock = clock or SystemClock()
        self._meter = Meter()
        topology = supervisor.topology
        graph = graph_of(topology, config.application_id)
        # What never changes is made once: somebody may look each second.
        self._parts = [asdict(part) for part in graph.parts]
        self._topics = [asdict(topic) for topic in graph.topics]
        self._ways = _ways(graph)
        self._dataframe_topics = _dataframe_topics(graph)
        self.stores: Sequence[Mapping[str, Any]] = [
            asdict(each) for each in stores_of(topology, config)
        ]
        self._has_tasks = has_tasks(topology)

    def now(self) -> dict[str, Any]:
        """The document of this moment, for JSON: dicts, lists, dataclasses, and what is in them."""
        streams, told = self._streams, self._supervisor.story.told()
        metadata = streams.metadata_for_local_threads()
        threads = [_thread(each, told.rates) for each in metadata]
        copies = {
            (each.thread_name, task.task_id) for each in metadata for task in each.standby_tasks
        }
        numbers = self._with_dataframes(numbers_of(streams.metrics(), copies))
        now_ms = self._clock.monotonic_ms()
        return {
            "version": VERSION,
            "now_ms": self._clock.now_ms(),
            "application": self._application(told),
            "totals": self._totals(threads, numbers, told),
            "threads": threads,
            "topology": self._topology(threads, numbers, now_ms),
            "stores": [_store(each, numbers) for each in self.stores],
            "restores": told.restores,
            "rebalances": told.rebalances,
            "states": told.states,
            "failures": told.failures,
            "subscriptions": self._subscriptions(now_ms),
        }

    def _application(self, told: Told) -> dict[str, Any]:
        streams, config = self._streams, self._config
        since_ms = told.states[-1].at_ms if told.states else None
        started_ms = next((each.at_ms for each in told.states if each.old == "CREATED"), None)
        return {
            "id": config.application_id,
            "state": streams.state.name,
            "since_ms": since_ms,
            "started_ms": started_ms,
            "paused": streams.is_paused,
            "guarantee": config.processing_guarantee,
            "error": None if streams.error is None else str(streams.error)[:4_000],
            "has_tasks": self._has_tasks,
            "elastic": self._supervisor.elastic.view(),
        }

    def _totals(
        self, threads: Iterable[ThreadView], numbers: Numbers, told: Told
    ) -> dict[str, Any]:
        return {
            "processed_total": numbers.processed,
            "commits_total": numbers.commits,
            "dropped_total": numbers.dropped,
            "rebuilt_total": numbers.rebuilt,
            "records_per_s": round(sum(each.records_per_s for each in threads), 1),
            "lag": sum(numbers.lag.values()) if numbers.lag else None,
            "history": told.history,
        }

    def _topology(
        self, threads: Iterable[ThreadView], numbers: Numbers, now_ms: int
    ) -> dict[str, Any]:
        rates: dict[int, float] = {}
        tasks: dict[int, int] = {}
        for task in (task for each in threads for task in each.active):
            part = int(task.id.split("_")[0])
            rates[part] = rates.get(part, 0.0) + (task.records_per_s or 0.0)
            tasks[part] = tasks.get(part, 0) + 1
        return {
            "parts": [
                {
                    **part,
                    "tasks": tasks.get(part["id"], 0),
                    "records_per_s": None
                    if part["is_global"] or part["dataframe"]
                    else round(rates.get(part["id"], 0.0), 1),
                    "dataframe": self._dataframe(part["dataframe"], numbers, now_ms),
                }
                for part in self._parts
            ],
            "topics": [{**each, "lag": numbers.lag.get(each["name"])} for each in self._topics],
            "edges": [self._flow(way, numbers, rates, now_ms) for way in self._ways],
        }

    def _with_dataframes(self, numbers: Numbers) -> Numbers:
        """What DataFrame functions read and what waits for them, like what sources do."""
        read, lag = dict(numbers.read), dict(numbers.lag)
        for name, stage in numbers.dataframes.items():
            topic = self._dataframe_topics.get(name)
            if topic is not None:
                read[topic, name] = stage.rows_total
                if stage.lag is not None:
                    lag[topic] = stage.lag
        return replace(numbers, read=read, lag=lag)

    def _dataframe(self, name: str | None, numbers: Numbers, now_ms: int) -> dict[str, Any] | None:
        if name is None:
            return None
        stage = numbers.dataframes.get(name, DataFrameNumbers())
        rate = self._meter.rate(("dataframe", name), stage.rows_total, now_ms)
        return {
            "name": name,
            **asdict(stage),
            "rows_per_s": None if rate is None else round(rate, 1),
        }

    def _flow(
        self, way: _Way, numbers: Numbers, rates: Mapping[int, float], now_ms: int
    ) -> dict[str, Any]:
        edge = way.edge
        source, target = edge.source.split(":", 1)[1], edge.target.split(":", 1)[1]
        total = None
        if edge.kind == "read":
            total = numbers.read.get((source, target))
        elif edge.kind == "write":
            total = numbers.written.get((source, target))
        elif way.is_only:
            total = numbers.through.get(target)
        rate = None if total is None else self._meter.rate(edge, total, now_ms)
        if total is None and way.only_of is not None:
            # What a sub-topology processes comes from its only topic.
            rate = rates.get(way.only_of, 0.0)
        lag = numbers.lag.get(source) if edge.kind == "read" else None
        return {
            **asdict(edge),
            "records_total": total,
            "records_per_s": None if rate is None else round(rate, 1),
            "lag": lag,
        }

    def _subscriptions(self, now_ms: int) -> list[SubscriptionView]:
        subscription = self._subscription()
        if subscription is None:
            return []
        metrics = subscription.metrics()
        rate = self._meter.rate("subscription", metrics.total("tasks.processed"), now_ms)
        return [subscription_of(subscription, metrics, rate)]


def _dataframe_topics(graph: Graph) -> dict[str, str]:
    """What each DataFrame function reads."""
    names = {part.nodes[0].id: part.dataframe for part in graph.parts if part.dataframe is not None}
    reads = (edge for edge in graph.edges if edge.kind == "read" and edge.target in names)
    return {names[edge.target]: edge.source.removeprefix("topic:") for edge in reads}


def _ways(graph: Graph) -> list[_Way]:
    part_of = {node.id: part for part in graph.parts for node in part.nodes}
    arrivals = Counter(edge.target for edge in graph.edges)
    reads = Counter(part_of[edge.target].id for edge in graph.edges if edge.kind == "read")
    found = []
    for edge in graph.edges:
        part = part_of[edge.target] if edge.kind == "read" else None
        is_all = (
            part is not None
            and reads[part.id] == 1
            and not part.is_global
            and part.dataframe is None
        )
        only_of = part.id if part is not None and is_all else None
        found.append(_Way(edge, arrivals[edge.target] == 1, only_of))
    return found


def _store(facts: Mapping[str, Any], numbers: Numbers) -> dict[str, Any]:
    name = facts["name"]
    return {
        **facts,
        "entries": numbers.entries.get(name),
        "disk_bytes": numbers.disk_bytes.get(name),
        "memory_bytes": numbers.memory_bytes.get(name),
        "cache_hits": numbers.cache_hits.get(name),
    }


def _thread(metadata: ThreadMetadata, rates: Mapping[tuple[str, str], float]) -> ThreadView:
    name = metadata.thread_name

    def task(each: TaskMetadata, rate: float | None) -> TaskView:
        return TaskView(each.task_id, each.state, None if rate is None else round(rate, 1))

    active = tuple(
        task(each, rates.get((name, each.task_id), 0.0)) for each in metadata.active_tasks
    )
    stall = metadata.stall
    return ThreadView(
        name=name,
        label=name.rpartition("-StreamThread-")[2] or name,
        state=metadata.thread_state,
        host=metadata.host,
        pid=metadata.pid,
        client=metadata.client,
        records_per_s=round(sum(each.records_per_s or 0.0 for each in active), 1),
        active=active,
        standby=tuple(task(each, None) for each in metadata.standby_tasks),
        stall=None
        if stall is None
        else {"silent_ms": stall.silent_ms, "place": stall.place, "stack": list(stall.stack)},
        uncommitted_ms=metadata.uncommitted_ms,
    )
