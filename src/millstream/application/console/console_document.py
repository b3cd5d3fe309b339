"""The document with the console's data, except the contents of stores.

Missing or unsupported numbers are null; lists without elements are empty. Times are milliseconds
since the epoch; names end in their units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Protocol

from millstream.application.console.metric_summary import (
    DataFrameSummary,
    MetricSummary,
    RateMeter,
    summarize,
)
from millstream.application.console.subscription_view import (
    MonitoredSubscription,
    SubscriptionView,
    subscription_of,
)
from millstream.application.console.topology_graph import (
    EdgeView,
    TopologyGraph,
    graph_of,
    stores_of,
)
from millstream.application.event_log.event_log import EventLogSnapshot
from millstream.application.supervisor import ThreadSupervisor
from millstream.application.thread_metadata import TaskMetadata, ThreadMetadata
from millstream.clock import Clock, SystemClock
from millstream.config.streams_config import StreamsConfig
from millstream.errors import StreamsError
from millstream.metrics.values import Metrics
from millstream.runtime.start.topology_topics import has_tasks
from millstream.runtime.states.thread_states import ClientState

#: Incremented when a field is removed or changes its meaning.
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task of a thread; a standby has no rate."""

    id: str
    state: str
    records_per_s: float | None


@dataclass(frozen=True, slots=True)
class ThreadView:
    """A stream thread.

    Args:
        label: a short name, unique in this application instance.
        host: None before the thread runs.
        client: the process id of the thread's Kafka Streams client. Each host has one client.
        stall: where the thread hangs: `silent_ms`, `place` and `stack`; None if it does not.
        uncommitted_ms: how long the thread has processed records without a commit; None unless a
            commit is overdue.
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
class _EdgeContext:
    """An edge, and its context in the graph.

    Args:
        is_only: whether the edge is the only input of its target.
        only_of: the sub-topology whose only input is this edge; None if there is none.
    """

    edge: EdgeView
    is_only: bool
    only_of: int | None


class MonitoredApplication(Protocol):
    """The part of `KafkaStreams` that the console needs."""

    @property
    def state(self) -> ClientState: ...

    @property
    def is_paused(self) -> bool: ...

    @property
    def error(self) -> StreamsError | None: ...

    def metrics(self) -> Metrics: ...

    def metadata_for_local_threads(self) -> list[ThreadMetadata]: ...


class ConsoleDocument:
    """Builds the document of an application; rates are measured between calls.

    Not thread-safe. `stores` is the static information about the stores.
    """

    def __init__(
        self,
        streams: MonitoredApplication,
        config: StreamsConfig,
        supervisor: ThreadSupervisor,
        subscription: Callable[[], MonitoredSubscription | None] = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        self._streams = streams
        self._config = config
        self._supervisor = supervisor
        self._subscription = subscription
        self._clock = clock or SystemClock()
        self._meter = RateMeter()
        topology = supervisor.topology
        graph = graph_of(topology, config.application_id)
        # Static parts are built once: a browser may poll every second.
        self._parts = [asdict(part) for part in graph.parts]
        self._topics = [asdict(topic) for topic in graph.topics]
        self._edge_contexts = _edge_contexts(graph)
        self._dataframe_topics = _dataframe_topics(graph)
        self.stores: Sequence[Mapping[str, Any]] = [
            asdict(each) for each in stores_of(topology, config)
        ]
        self._has_tasks = has_tasks(topology)

    def build(self) -> dict[str, Any]:
        """Return the current document, as dicts, lists and dataclasses for JSON."""
        streams, log = self._streams, self._supervisor.event_log.snapshot()
        metadata = streams.metadata_for_local_threads()
        threads = [_thread(each, log.rates) for each in metadata]
        copies = {
            (each.thread_name, task.task_id) for each in metadata for task in each.standby_tasks
        }
        summary = self._with_dataframes(summarize(streams.metrics(), copies))
        now_ms = self._clock.monotonic_ms()
        return {
            "version": VERSION,
            "now_ms": self._clock.now_ms(),
            "application": self._application(log),
            "totals": self._totals(threads, summary, log),
            "threads": threads,
            "topology": self._topology(threads, summary, now_ms),
            "stores": [_store(each, summary) for each in self.stores],
            "restores": log.restores,
            "rebalances": log.rebalances,
            "states": log.states,
            "failures": log.failures,
            "dead_letters": [
                {"node": node, "handler": handler, "topic": topic, "records_total": total}
                for (node, handler, topic), total in sorted(summary.dead_letters.items())
            ],
            "subscriptions": self._subscriptions(now_ms),
        }

    def _application(self, log: EventLogSnapshot) -> dict[str, Any]:
        streams, config = self._streams, self._config
        since_ms = log.states[-1].at_ms if log.states else None
        started_ms = next((each.at_ms for each in log.states if each.old == "CREATED"), None)
        return {
            "id": config.application_id,
            "state": streams.state.name,
            "since_ms": since_ms,
            "started_ms": started_ms,
            "paused": streams.is_paused,
            "guarantee": config.processing_guarantee,
            "error": None if streams.error is None else str(streams.error)[:4_000],
            "has_tasks": self._has_tasks,
            "elastic": self._supervisor.autoscaler.view(),
        }

    def _totals(
        self, threads: Iterable[ThreadView], summary: MetricSummary, log: EventLogSnapshot
    ) -> dict[str, Any]:
        return {
            "processed_total": summary.processed,
            "commits_total": summary.commits,
            "dropped_total": summary.dropped,
            "rebuilt_total": summary.rebuilt,
            "dead_letters_total": sum(summary.dead_letters.values()),
            "records_per_s": round(sum(each.records_per_s for each in threads), 1),
            "lag": sum(summary.lag.values()) if summary.lag else None,
            "history": log.history,
        }

    def _topology(
        self, threads: Iterable[ThreadView], summary: MetricSummary, now_ms: int
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
                    "dataframe": self._dataframe(part["dataframe"], summary, now_ms),
                }
                for part in self._parts
            ],
            "topics": [{**each, "lag": summary.lag.get(each["name"])} for each in self._topics],
            "edges": [
                self._flow(context, summary, rates, now_ms) for context in self._edge_contexts
            ],
        }

    def _with_dataframes(self, summary: MetricSummary) -> MetricSummary:
        """Add the input and the lag of DataFrame functions, like those of sources."""
        read, lag = dict(summary.read), dict(summary.lag)
        for name, stage in summary.dataframes.items():
            topic = self._dataframe_topics.get(name)
            if topic is not None:
                read[topic, name] = stage.rows_total
                if stage.lag is not None:
                    lag[topic] = stage.lag
        return replace(summary, read=read, lag=lag)

    def _dataframe(
        self, name: str | None, summary: MetricSummary, now_ms: int
    ) -> dict[str, Any] | None:
        if name is None:
            return None
        stage = summary.dataframes.get(name, DataFrameSummary())
        rate = self._meter.rate(("dataframe", name), stage.rows_total, now_ms)
        return {
            "name": name,
            **asdict(stage),
            "rows_per_s": None if rate is None else round(rate, 1),
        }

    def _flow(
        self, context: _EdgeContext, summary: MetricSummary, rates: Mapping[int, float], now_ms: int
    ) -> dict[str, Any]:
        edge = context.edge
        source, target = edge.source.split(":", 1)[1], edge.target.split(":", 1)[1]
        total = None
        if edge.kind == "read":
            total = summary.read.get((source, target))
        elif edge.kind == "write":
            total = summary.written.get((source, target))
        elif context.is_only:
            total = summary.through.get(target)
        rate = None if total is None else self._meter.rate(edge, total, now_ms)
        if total is None and context.only_of is not None:
            # All records of the sub-topology come from its only topic.
            rate = rates.get(context.only_of, 0.0)
        lag = summary.lag.get(source) if edge.kind == "read" else None
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


def _dataframe_topics(graph: TopologyGraph) -> dict[str, str]:
    """Return the input topic of each DataFrame function."""
    names = {part.nodes[0].id: part.dataframe for part in graph.parts if part.dataframe is not None}
    reads = (edge for edge in graph.edges if edge.kind == "read" and edge.target in names)
    return {names[edge.target]: edge.source.removeprefix("topic:") for edge in reads}


def _edge_contexts(graph: TopologyGraph) -> list[_EdgeContext]:
    part_of = {node.id: part for part in graph.parts for node in part.nodes}
    arrivals = Counter(edge.target for edge in graph.edges)
    reads = Counter(part_of[edge.target].id for edge in graph.edges if edge.kind == "read")
    contexts = []
    for edge in graph.edges:
        part = part_of[edge.target] if edge.kind == "read" else None
        is_all = (
            part is not None
            and reads[part.id] == 1
            and not part.is_global
            and part.dataframe is None
        )
        only_of = part.id if part is not None and is_all else None
        contexts.append(_EdgeContext(edge, arrivals[edge.target] == 1, only_of))
    return contexts


def _store(facts: Mapping[str, Any], summary: MetricSummary) -> dict[str, Any]:
    name = facts["name"]
    return {
        **facts,
        "entries": summary.entries.get(name),
        "disk_bytes": summary.disk_bytes.get(name),
        "memory_bytes": summary.memory_bytes.get(name),
        "cache_hits": summary.cache_hits.get(name),
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
