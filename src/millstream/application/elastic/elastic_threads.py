"""Lets the stream threads of an instance come and go, as is decided."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from millstream.application.client_metrics import ClientMetrics
from millstream.application.crew import Crew
from millstream.application.elastic.decisions import (
    Bounds,
    Decision,
    Decisions,
    Kind,
    Look,
)
from millstream.application.elastic.looking import Looking
from millstream.application.story.story import ApplicationStory
from millstream.application.thread_changes import ThreadChanges
from millstream.application.workers import Workers
from millstream.clock import Clock
from millstream.config import StreamsConfig
from millstream.errors import StreamsError
from millstream.metrics.values import Metric
from millstream.runtime.client_states import ClientStates
from millstream.runtime.states import OwnedTask, ThreadState
from millstream.spark.engine import SparkEngine
from millstream.spark.sessions.free_slots import FreeSlots, free_slots
from millstream.spark.worker.worker_logging import short_name

logger = logging.getLogger("millstream")

#: What Kafka Streams has no name for.
ELASTIC_GROUP: Final = "millstream-elastic-metrics"

#: How often it is looked at how things are: a little seldomer than threads tell.
_EVERY_MS: Final = 1_000
#: How long a thread may wait for a slot. Executors that Spark has been asked for take a minute or
#: two where machines have to be started for them.
_SLOT_PATIENCE_MS: Final = 120_000


def _aside(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="millstream-elastic", daemon=True).start()


@dataclass(frozen=True, slots=True)
class Parts:
    """What of an instance is looked at and changed.

    Args:
        states: of the threads.
        crew: the threads.
        changes: says whether it is the time for it.
        metrics: what threads have told.
        story: what is restored.
        workers: where threads run.
    """

    states: ClientStates
    crew: Crew
    changes: ThreadChanges
    metrics: ClientMetrics
    story: ApplicationStory
    workers: Workers


@dataclass(frozen=True, slots=True)
class ElasticView:
    """How it is with threads that come and go.

    Args:
        least: threads that there are in any case.
        most: threads beyond which none is added.
        wanted: how many the load asks for.
        last: the last decision that changed something, or could not; empty before there was one.
    """

    least: int
    most: int
    wanted: int
    last: str


class ElasticThreads:
    """Looks about once a second, decides, and acts without waiting for what becomes of it.

    Does nothing where `num_stream_threads` is one number.

    Args:
        config: the bounds.
        parts: of the instance.
        clock: time.
        state_on_disk: whether a host keeps state for the threads that run there.
        room: asks where threads could run.
        aside: calls something without waiting for it.
    """

    def __init__(
        self,
        config: StreamsConfig,
        parts: Parts,
        clock: Clock,
        *,
        state_on_disk: bool,
        room: Callable[[SparkEngine], FreeSlots] = lambda engine: free_slots(engine.session),
        aside: Callable[[Callable[[], None]], None] = _aside,
    ) -> None:
        self._config = config
        self._room = room
        self._aside = aside
        self._acts = False
        self._parts = parts
        self._clock = clock
        #: Without standbys only the host where a task runs has its state.
        self._bound_to_hosts = state_on_disk and config.num_standby_replicas == 0
        bounds = Bounds(
            config.least_stream_threads,
            config.most_stream_threads,
            config.elastic_lag_target_ms,
            config.elastic_cooldown_ms,
            _SLOT_PATIENCE_MS,
        )
        self.bounds = bounds
        self._decisions = Decisions(bounds)
        self._looking = Looking(
            bounds.slot_patience_ms, config.acceptable_recovery_lag, self._why_none_may_go
        )
        self._next_ms = 0
        self._added: set[str] = set()
        self._counts: Counter[Kind] = Counter()
        self._last: Decision | None = None
        self._wanted = bounds.least

    @property
    def is_on(self) -> bool:
        """Whether threads come and go by themselves."""
        return self.bounds.most > self.bounds.least

    def view(self) -> ElasticView | None:
        """What the console shows of it; None where nothing is elastic."""
        if not self.is_on:
            return None
        last = "" if self._last is None else _in_words(self._last)
        return ElasticView(self.bounds.least, self.bounds.most, self._wanted, last)

    def look(self) -> None:
        """Called a few times a second. Does not wait for anything."""
        now_ms = self._clock.monotonic_ms()
        if not self.is_on or self._acts or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + _EVERY_MS
        decision: Decision | None = None
        with self._parts.changes.if_idle() as engine:
            if engine is not None:
                decision = self._decide(engine, self._look(now_ms))
        if decision is not None and decision.count:
            chosen, self._acts = decision, True
            # The user's state listener is called by who changes threads, and may take its time.
            self._aside(lambda: self._act(chosen, now_ms))

    def withdraws(self, thread: str, error: StreamsError) -> bool:
        """A thread has got no slot, or could not be run: whether that is all that there is to it,
        because nobody but this one wanted it."""
        if thread not in self._added:
            return False
        self._added.discard(thread)
        self._decisions.no_room(self._clock.monotonic_ms())
        self._counts["withdraw"] += 1
        logger.warning("%s is withdrawn: %s", short_name(thread), error)
        return True

    def metrics(self) -> list[Metric]:
        """What is told of it."""
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

    def _look(self, now_ms: int) -> Look:
        parts = self._parts
        return self._looking.look(
            now_ms,
            parts.states.threads(),
            parts.crew.leaving,
            parts.metrics.told(),
            parts.story.told().restores,
            paused=parts.crew.paused,
        )

    def _decide(self, engine: SparkEngine, look: Look) -> Decision:
        decision = self._decisions.decide(look, lambda: self._room(engine))
        self._wanted = decision.wanted
        is_news = decision.kind != "stay"
        if is_news or decision.wanted > look.threads:
            # What cannot be done is told once, not each second.
            before, self._last = self._last, decision
            if is_news or before is None or before.kind != "stay":
                logger.info(
                    "%s, %d threads of %d to %d: %s",
                    self._config.application_id,
                    look.threads,
                    self.bounds.least,
                    self.bounds.most,
                    _in_words(decision),
                )
        return decision

    def _act(self, decision: Decision, now_ms: int) -> None:
        try:
            with self._parts.changes.if_idle() as engine:
                if engine is not None:
                    for _ in range(decision.count):
                        self._do(decision.kind, now_ms)
        finally:
            self._acts = False

    def _do(self, kind: Kind, now_ms: int) -> None:
        crew = self._parts.crew
        try:
            if kind == "add":
                self._added.add(crew.begin_to_add(self.bounds.slot_patience_ms))
            else:
                late = self._looking.late(now_ms, self._staying())
                name = max(late, key=_index) if kind == "withdraw" and late else self._who_may_go()
                if name is None or crew.begin_to_remove(name) is None:
                    return
                self._added.discard(name)
        except StreamsError as error:
            self._decisions.no_room(now_ms)
            logger.warning("no thread can be added: %s", error)
        else:
            self._counts[kind] += 1

    def _staying(self) -> dict[str, tuple[ThreadState, dict[str, OwnedTask]]]:
        leaving = self._parts.crew.leaving
        threads = self._parts.states.threads()
        return {name: each for name, each in threads.items() if name not in leaving}

    def _who_may_go(self) -> str | None:
        """The youngest thread of the host that has most of them, which keep its state."""
        hosts = {name: self._parts.workers.host_of(name) for name in self._staying()}
        counts = Counter(hosts.values())
        if not counts or (self._bound_to_hosts and max(counts.values()) < 2):
            return None
        return max(hosts, key=lambda name: (counts[hosts[name]], _index(name)))

    def _why_none_may_go(self, threads: Iterable[str]) -> str:
        counts = Counter(map(self._parts.workers.host_of, threads))
        if not self._bound_to_hosts or max(counts.values(), default=0) > 1:
            return ""
        return "each thread is alone on its host, whose state would have to be rebuilt elsewhere"


def _index(thread: str) -> int:
    return int(thread.rpartition("-")[2])


def _in_words(decision: Decision) -> str:
    """A decision in one line."""
    count = decision.count
    threads = "a thread is" if count == 1 else f"{count} threads are"
    done = {
        "add": f"{threads} added",
        "remove": f"{threads} removed",
        "withdraw": f"{threads} withdrawn",
        "stay": f"{decision.wanted} would be better, but nothing is changed",
    }
    return f"{done[decision.kind]}: {decision.why}"
