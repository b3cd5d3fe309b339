"""Scaling decisions are carried out and logged, and withdrawn if Spark has no slots."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.application.autoscaling.autoscaler import Autoscaler, ScalingContext
from millstream.application.event_log.event_log import EventLog
from millstream.application.stream_threads import ThreadChanges
from millstream.application.thread_metadata import WorkerLocation
from millstream.clock import ManualClock
from millstream.config.streams_config import StreamsConfig
from millstream.errors import NotEnoughSlotsError, SparkError
from millstream.metrics.values import Metric
from millstream.runtime.states.client_states import ClientStateTracker
from millstream.runtime.states.thread_states import ClientState, OwnedTask, ThreadState
from millstream.spark.sessions.free_slots import FreeSlots

REFUSED = NotEnoughSlotsError("no slot", slots=1, needed=2)


def run_on_thread(work: Callable[[], None]) -> None:
    """Run work on another thread, as the autoscaler does, but wait for it."""
    other = threading.Thread(target=work)
    other.start()
    other.join()


class StreamThreads:
    """Threads that are running as soon as they are added."""

    def __init__(self, states: ClientStateTracker) -> None:
        self.states = states
        self.engine = object()
        self.leaving: frozenset[str] = frozenset()
        self.paused = False
        self.shutdown_reason: str | None = None
        self.waits_ms: list[int] = []
        self.error: SparkError | None = None
        self.names: list[str] = []

    def add(self, register_ms: int) -> str:
        if self.error is not None:
            raise self.error
        self.waits_ms.append(register_ms)
        name = f"app-StreamThread-{len(self.names) + 1}"
        self.names.append(name)
        self.states.set_thread_state(name, ThreadState.RUNNING, "test")
        self.states.set_tasks(name, {f"0_{each}": OwnedTask("RUNNING") for each in range(8)})
        return name

    def begin_removal(self, name: str) -> str:
        self.names.remove(name)
        self.states.set_thread_state(name, ThreadState.DEAD, "test")
        return name


class Instance:
    """An application with one to four threads that starts with one."""

    def __init__(self, hosts: dict[str, str] | None = None, **settings: Any) -> None:
        self.clock = ManualClock()
        self.states = ClientStateTracker("app", self.clock)
        self.states.try_transition(ClientState.REBALANCING, "test")
        self.stream_threads = StreamThreads(self.states)
        self.gate = threading.RLock()
        self.free_slots = FreeSlots(free=10)
        self.thread_metrics: dict[str, list[Metric]] = {}
        self.hosts = hosts or {}
        given = {"num_stream_threads": (1, 4), **settings}
        config = StreamsConfig(application_id="app", bootstrap_servers="b:1", **given)
        stream_threads: Any = self.stream_threads
        metrics: Any = SimpleNamespace(by_thread=lambda: self.thread_metrics)
        workers: Any = SimpleNamespace(
            location_of=lambda thread: WorkerLocation(self.hosts.get(thread, "here"))
        )
        context = ScalingContext(
            self.states,
            stream_threads,
            ThreadChanges(self.states, stream_threads, self.gate),
            metrics,
            EventLog(self.clock),
            workers,
        )
        self.autoscaler = Autoscaler(
            config,
            context,
            self.clock,
            state_on_disk=True,
            find_free_slots=lambda _: self.free_slots,
            run_in_background=run_on_thread,
        )
        self.stream_threads.add(0)
        self.processed = 0

    def run(self, seconds: int, *, lag: int = 0, rate: int = 0) -> None:
        """Run for some seconds with a constant lag and a constant processing rate."""
        for _ in range(seconds):
            self.clock.advance(1_000)
            self.processed += rate
            self.thread_metrics = {name: [] for name in self.stream_threads.names}
            self.thread_metrics["app-StreamThread-1"] = [
                Metric(
                    "process-total",
                    {"task-id": "0_0"},
                    float(self.processed),
                    "stream-task-metrics",
                ),
                Metric(
                    "records-lag", {"task-id": "0_0"}, float(lag), "consumer-fetch-manager-metrics"
                ),
            ]
            self.autoscaler.tick()

    def metric(self, name: str) -> float | str:
        return next(one.value for one in self.autoscaler.metrics() if one.name == name)


def test_threads_are_added_and_removed_and_each_decision_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    instance = Instance()
    with caplog.at_level(logging.INFO, "millstream"):
        instance.run(20, lag=5_000, rate=100)
        assert len(instance.stream_threads.names) == 2
        assert instance.stream_threads.waits_ms[1:] == [120_000]
        assert instance.metric("threads-added-total") == 1
        assert instance.metric("threads-wanted") == 2
        instance.run(200)
        assert len(instance.stream_threads.names) == 1
        assert instance.metric("threads-removed-total") == 1
    lines = [each.message for each in caplog.records if "1 to 4" in each.message]
    assert lines == [
        "app (threads: 1, limits: 1 to 4): added 1 thread: 5,000 records are waiting in "
        "sub-topology 0, 50.0 s of work at 100/s; 100/s arrive; the target is 30 s; 10 slots are "
        "free",
        "app (threads: 2, limits: 1 to 4): removed 1 thread: 0 records are waiting, none are "
        "processed; 0.0 of 2 threads are busy: 1 would have been enough for 120 s",
    ]
    view = instance.autoscaler.view()
    assert view is not None
    assert (view.least, view.most, view.wanted) == (1, 4, 1)
    assert lines[1].endswith(view.last)
    assert instance.metric("last-decision") == view.last


def test_an_impossible_decision_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    instance = Instance()
    instance.free_slots = FreeSlots(free=0)
    with caplog.at_level(logging.INFO, "millstream"):
        instance.run(60, lag=5_000, rate=100)
    assert len(instance.stream_threads.names) == 1
    assert instance.metric("threads-wanted") == 2
    (line,) = [each.message for each in caplog.records if "1 to 4" in each.message]
    assert "2 would be better, but nothing was changed" in line
    assert line.endswith("no slot is free")


def test_a_thread_without_a_slot_is_withdrawn_and_added_again_later() -> None:
    instance = Instance()
    instance.run(20, lag=5_000, rate=100)
    added = instance.stream_threads.names[-1]
    assert not instance.autoscaler.try_withdraw("app-StreamThread-1", REFUSED)
    assert instance.autoscaler.try_withdraw(added, REFUSED)
    instance.stream_threads.begin_removal(added)
    instance.run(100, lag=5_000, rate=100)
    assert (len(instance.stream_threads.names), instance.metric("threads-withdrawn-total")) == (
        1,
        1,
    )
    instance.run(30, lag=5_000, rate=100)
    assert len(instance.stream_threads.names) == 2


def test_a_session_that_rejects_a_thread_is_tried_again_later() -> None:
    instance = Instance()
    instance.stream_threads.error = REFUSED
    instance.run(60, lag=5_000, rate=100)
    instance.stream_threads.error = None
    instance.run(60, lag=5_000, rate=100)
    assert len(instance.stream_threads.names) == 1
    instance.run(30, lag=5_000, rate=100)
    assert len(instance.stream_threads.names) > 1


def test_threads_are_not_changed_during_start_close_and_shutdown() -> None:
    instance = Instance()
    with ThreadPoolExecutor(1) as other:
        other.submit(instance.gate.acquire).result()
        instance.run(60, lag=5_000, rate=100)
        other.submit(instance.gate.release).result()
    instance.stream_threads.shutdown_reason = "test"
    instance.run(60, lag=5_000, rate=100)
    instance.stream_threads.shutdown_reason = None
    instance.states.try_transition(ClientState.PENDING_SHUTDOWN, "test")
    instance.run(60, lag=5_000, rate=100)
    assert len(instance.stream_threads.names) == 1


def test_a_fixed_number_of_threads_is_not_changed_and_has_no_metrics() -> None:
    instance = Instance(num_stream_threads=2)
    instance.run(60, lag=5_000, rate=100)
    assert (len(instance.stream_threads.names), instance.autoscaler.metrics()) == (1, [])
    assert instance.autoscaler.view() is None


@pytest.mark.parametrize(
    ("hosts", "standbys", "remaining"),
    [
        ({"app-StreamThread-1": "a", "app-StreamThread-2": "b"}, 0, [1, 2]),
        ({"app-StreamThread-1": "a", "app-StreamThread-2": "b"}, 1, [1]),
        (
            {"app-StreamThread-1": "a", "app-StreamThread-2": "a", "app-StreamThread-3": "b"},
            0,
            [1, 3],
        ),
    ],
)
def test_a_thread_is_removed_if_another_on_its_host_can_use_its_state(
    hosts: dict[str, str], standbys: int, remaining: list[int]
) -> None:
    """It is also removed if its tasks have standbys on other hosts."""
    instance = Instance(hosts, num_standby_replicas=standbys)
    while len(instance.stream_threads.names) < len(hosts):
        instance.stream_threads.add(0)
    instance.run(140)
    assert instance.stream_threads.names == [f"app-StreamThread-{number}" for number in remaining]
