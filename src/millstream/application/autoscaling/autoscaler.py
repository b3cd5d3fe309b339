"""Adds and removes stream threads of an instance according to the scaling policy."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from millstream.application.autoscaling.policy import (
    LoadSample,
    ScalingAction,
    ScalingBounds,
    ScalingDecision,
    ScalingPolicy,
)
from millstream.application.autoscaling.sampler import LoadSampler
from millstream.application.client_metrics import ClientMetrics
from millstream.application.event_log.event_log import EventLog
from millstream.application.stream_threads import StreamThreads, ThreadChanges
from millstream.application.thread_metadata import WorkerRegistry
from millstream.clock import Clock
from millstream.config.streams_config import StreamsConfig
from millstream.errors import StreamsError
from millstream.log_format import short_name
from millstream.metrics.values import Metric
from millstream.runtime.states.client_states import ClientStateTracker
from millstream.runtime.states.thread_states import OwnedTask, ThreadState
from millstream.spark.engine import SparkEngine
from millstream.spark.sessions.free_slots import FreeSlots, free_slots

logger = logging.getLogger("millstream")

#: The group of the autoscaler's metrics, which Kafka Streams does not have.
ELASTIC_GROUP: Final = "millstream-elastic-metrics"

#: The interval between samples. A thread reports at most twice in this time.
_INTERVAL_MS: Final = 1_000
#: How long an added thread may wait for a slot. New executors take a minute or two if machines must
#: be started for them.
_SLOT_TIMEOUT_MS: Final = 120_000


def _run_in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="millstream-elastic", daemon=True).start()


@dataclass(frozen=True, slots=True)
class ScalingContext:
    """The components of an instance that the autoscaler reads and changes."""

    states: ClientStateTracker
    stream_threads: StreamThreads
    changes: ThreadChanges
    metrics: ClientMetrics
    event_log: EventLog
    workers: WorkerRegistry


@dataclass(frozen=True, slots=True)
class AutoscalingView:
    least: int
    most: int
    wanted: int
    last: str


class Autoscaler:
    """Samples the load once a second, decides, and changes threads in the background.

    Does nothing if `num_stream_threads` is a single number.
    """

    def __init__(
        self,
        config: StreamsConfig,
        context: ScalingContext,
        clock: Clock,
        *,
        state_on_disk: bool,
        find_free_slots: Callable[[SparkEngine], FreeSlots] = lambda engine: free_slots(
            engine.session
        ),
        run_in_background: Callable[[Callable[[], None]], None] = _run_in_background,
    ) -> None:
        self._config = config
        self._context = context
        self._find_free_slots = find_free_slots
        self._run_in_background = run_in_background
        self._is_running = False
        self._clock = clock
        #: Whether a task's state is only on the host of the task: on disk, without standbys.
        self._bound_to_hosts = state_on_disk and config.num_standby_replicas == 0
        self.bounds = bounds = ScalingBounds(
            config.least_stream_threads,
            config.most_stream_threads,
            config.elastic_lag_target_ms,
            config.elastic_cooldown_ms,
            _SLOT_TIMEOUT_MS,
        )
        self._policy = ScalingPolicy(bounds)
        self._sampler = LoadSampler(
            bounds.slot_timeout_ms, config.acceptable_recovery_lag, self._removal_obstacle
        )
        self._next_ms = 0
        self._added: set[str] = set()
        self._counts: Counter[ScalingAction] = Counter()
        self._last: ScalingDecision | None = None
        self._target = bounds.min_threads

    @property
    def is_enabled(self) -> bool:
        return self.bounds.max_threads > self.bounds.min_threads

    def view(self) -> AutoscalingView | None:
        """Return the state for the console; None if the autoscaler is disabled."""
        if not self.is_enabled:
            return None
        last = "" if self._last is None else _describe(self._last)
        return AutoscalingView(self.bounds.min_threads, self.bounds.max_threads, self._target, last)

    def tick(self) -> None:
        """Make a decision if one is due. Called several times a second; does not block."""
        now_ms = self._clock.monotonic_ms()
        if not self.is_enabled or self._is_running or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + _INTERVAL_MS
        decision: ScalingDecision | None = None
        with self._context.changes.engine_if_idle() as engine:
            if engine is not None:
                decision = self._decide(engine, self._sample(now_ms))
        if decision is not None and decision.count:
            chosen, self._is_running = decision, True
            # The thread that makes the changes calls the user's state listener, which may be slow.
            self._run_in_background(lambda: self._run(chosen, now_ms))

    def try_withdraw(self, thread: str, error: StreamsError) -> bool:
        """Withdraw a thread that got no slot or could not be run.

        Return False if the autoscaler did not add the thread.
        """
        if thread not in self._added:
            return False
        self._added.discard(thread)
        self._policy.slot_unavailable(self._clock.monotonic_ms())
        self._counts["withdraw"] += 1
        logger.warning("withdrew %s: %s", short_name(thread), error)
        return True

    def metrics(self) -> list[Metric]:
        view = self.view()
        if view is None:
            return []
        values: dict[str, float | str] = {
            "threads-least": view.least,
            "threads-most": view.most,
            "threads-wanted": view.wanted,
            "threads-added-total": self._counts["add"],
            "threads-removed-total": self._counts["remove"],
            "threads-withdrawn-total": self._counts["withdraw"],
            "last-decision": view.last,
        }
        return [Metric(name, {}, value, ELASTIC_GROUP) for name, value in values.items()]

    def _sample(self, now_ms: int) -> LoadSample:
        context = self._context
        return self._sampler.sample(
            now_ms,
            context.states.threads(),
            context.stream_threads.leaving,
            context.metrics.by_thread(),
            context.event_log.snapshot().restores,
            paused=context.stream_threads.paused,
        )

    def _decide(self, engine: SparkEngine, sample: LoadSample) -> ScalingDecision:
        decision = self._policy.decide(sample, lambda: self._find_free_slots(engine))
        self._target = decision.wanted
        is_news = decision.kind != "stay"
        if is_news or decision.wanted > sample.threads:
            # A decision that cannot be carried out is logged once, not every second.
            before, self._last = self._last, decision
            if is_news or before is None or before.kind != "stay":
                logger.info(
                    "%s (threads: %d, limits: %d to %d): %s",
                    self._config.application_id,
                    sample.threads,
                    self.bounds.min_threads,
                    self.bounds.max_threads,
                    _describe(decision),
                )
        return decision

    def _run(self, decision: ScalingDecision, now_ms: int) -> None:
        try:
            with self._context.changes.engine_if_idle() as engine:
                if engine is not None:
                    for _ in range(decision.count):
                        self._execute(decision.kind, now_ms)
        finally:
            self._is_running = False

    def _execute(self, kind: ScalingAction, now_ms: int) -> None:
        stream_threads = self._context.stream_threads
        try:
            if kind == "add":
                self._added.add(stream_threads.add(self.bounds.slot_timeout_ms))
            else:
                overdue = self._sampler.overdue(now_ms, self._remaining())
                name = (
                    max(overdue, key=_index)
                    if kind == "withdraw" and overdue
                    else self._removable_thread()
                )
                if name is None or stream_threads.begin_removal(name) is None:
                    return
                self._added.discard(name)
        except StreamsError as error:
            self._policy.slot_unavailable(now_ms)
            logger.warning("could not %s a thread: %s", "add" if kind == "add" else "remove", error)
        else:
            self._counts[kind] += 1

    def _remaining(self) -> dict[str, tuple[ThreadState, dict[str, OwnedTask]]]:
        leaving = self._context.stream_threads.leaving
        threads = self._context.states.threads()
        return {name: each for name, each in threads.items() if name not in leaving}

    def _host_of(self, thread: str) -> str | None:
        return self._context.workers.location_of(thread).host

    def _removable_thread(self) -> str | None:
        """Return the newest thread of the host with the most threads."""
        hosts = {name: self._host_of(name) for name in self._remaining()}
        counts = Counter(hosts.values())
        if not counts or (self._bound_to_hosts and max(counts.values()) < 2):
            return None
        return max(hosts, key=lambda name: (counts[hosts[name]], _index(name)))

    def _removal_obstacle(self, threads: Iterable[str]) -> str:
        counts = Counter(map(self._host_of, threads))
        if not self._bound_to_hosts or max(counts.values(), default=0) > 1:
            return ""
        return "each host has only one thread, and its state would have to be restored elsewhere"


def _index(thread: str) -> int:
    return int(thread.rpartition("-")[2])


def _describe(decision: ScalingDecision) -> str:
    count = decision.count
    threads = "1 thread" if count == 1 else f"{count} threads"
    actions = {
        "add": f"added {threads}",
        "remove": f"removed {threads}",
        "withdraw": f"withdrew {threads}",
        "stay": f"{decision.wanted} would be better, but nothing was changed",
    }
    return f"{actions[decision.kind]}: {decision.why}"
