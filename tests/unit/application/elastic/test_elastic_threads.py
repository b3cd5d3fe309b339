"""What is decided is done, told, and given up where Spark has no room."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.application.elastic.elastic_threads import ElasticThreads, Parts
from millstream.application.story.story import ApplicationStory
from millstream.application.thread_changes import ThreadChanges
from millstream.clock import ManualClock
from millstream.config import StreamsConfig
from millstream.errors import NotEnoughSlotsError, SparkError
from millstream.metrics.values import Metric
from millstream.runtime.client_states import ClientStates
from millstream.runtime.states import ClientState, OwnedTask, ThreadState
from millstream.spark.sessions.free_slots import FreeSlots

REFUSED = NotEnoughSlotsError("no slot", slots=1, needed=2)


def elsewhere(work: Callable[[], None]) -> None:
    """On another thread, as it is done; but waited for."""
    other = threading.Thread(target=work)
    other.start()
    other.join()


class Crew:
    """Threads that run as soon as they are asked for."""

    def __init__(self, states: ClientStates) -> None:
        self.states = states
        self.engine = object()
        self.leaving: frozenset[str] = frozenset()
        self.paused = False
        self.shutdown_why: str | None = None
        self.waits_ms: list[int] = []
        self.error: SparkError | None = None
        self.names: list[str] = []

    def begin_to_add(self, register_ms: int) -> str:
        if self.error is not None:
            raise self.error
        self.waits_ms.append(register_ms)
        name = f"app-StreamThread-{len(self.names) + 1}"
        self.names.append(name)
        self.states.thread_is(name, ThreadState.RUNNING, "test")
        self.states.tasks_are(name, {f"0_{each}": OwnedTask("RUNNING") for each in range(8)})
        return name

    def begin_to_remove(self, name: str) -> str:
        self.names.remove(name)
        self.states.thread_is(name, ThreadState.DEAD, "test")
        return name


class Instance:
    """An application of one to four threads that runs with one."""

    def __init__(self, hosts: dict[str, str] | None = None, **settings: Any) -> None:
        self.clock = ManualClock()
        self.states = ClientStates("app", self.clock)
        self.states.become(ClientState.REBALANCING, "test")
        self.crew = Crew(self.states)
        self.gate = threading.RLock()
        self.room = FreeSlots(free=10)
        self.told: dict[str, list[Metric]] = {}
        self.hosts = hosts or {}
        given = {"num_stream_threads": (1, 4), **settings}
        config = StreamsConfig(application_id="app", bootstrap_servers="b:1", **given)
        crew: Any = self.crew
        metrics: Any = SimpleNamespace(told=lambda: self.told)
        workers: Any = SimpleNamespace(host_of=lambda thread: self.hosts.get(thread, "here"))
        parts = Parts(
            self.states,
            crew,
            ThreadChanges(self.states, crew, self.gate),
            metrics,
            ApplicationStory(self.clock),
            workers,
        )
        self.elastic = ElasticThreads(
            config,
            parts,
            self.clock,
            state_on_disk=True,
            room=lambda _: self.room,
            aside=elsewhere,
        )
        self.crew.begin_to_add(0)
        self.processed = 0

    def run(self, seconds: int, *, lag: int = 0, rate: int = 0) -> None:
        """Seconds in which a lag stays and so many records are processed."""
        for _ in range(seconds):
            self.clock.advance(1_000)
            self.processed += rate
            self.told = {name: [] for name in self.crew.names}
            self.told["app-StreamThread-1"] = [
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
            self.elastic.look()

    def metric(self, name: str) -> float | str:
        return next(one.value for one in self.elastic.metrics() if one.name == name)


def test_threads_come_and_go_and_each_decision_is_told(caplog: pytest.LogCaptureFixture) -> None:
    instance = Instance()
    with caplog.at_level(logging.INFO, "millstream"):
        instance.run(20, lag=5_000, rate=100)
        assert len(instance.crew.names) == 2
        assert instance.crew.waits_ms[1:] == [120_000]
        assert instance.metric("threads-added-total") == 1
        assert instance.metric("threads-wanted") == 2
        instance.run(200)
        assert len(instance.crew.names) == 1
        assert instance.metric("threads-removed-total") == 1
    lines = [each.message for each in caplog.records if "1 to 4" in each.message]
    assert lines == [
        "app, 1 threads of 1 to 4: a thread is added: 5,000 records wait in sub-topology 0, 50.0 s "
        "of work at 100/s; 100/s come in, more than 30 s; 10 slots are free",
        "app, 2 threads of 1 to 4: a thread is removed: 0 records wait, none is processed; 0.0 of "
        "2 threads are busy: 1 would be enough, for 120 s now",
    ]
    view = instance.elastic.view()
    assert view is not None
    assert (view.least, view.most, view.wanted) == (1, 4, 1)
    assert lines[1].endswith(view.last)
    assert instance.metric("last-decision") == view.last


def test_what_cannot_be_done_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    instance = Instance()
    instance.room = FreeSlots(free=0)
    with caplog.at_level(logging.INFO, "millstream"):
        instance.run(60, lag=5_000, rate=100)
    assert len(instance.crew.names) == 1
    assert instance.metric("threads-wanted") == 2
    (line,) = [each.message for each in caplog.records if "1 to 4" in each.message]
    assert "2 would be better, but nothing is changed" in line
    assert line.endswith("no slot is free")


def test_a_thread_that_gets_no_slot_is_withdrawn_and_another_tried_later() -> None:
    instance = Instance()
    instance.run(20, lag=5_000, rate=100)
    added = instance.crew.names[-1]
    assert not instance.elastic.withdraws("app-StreamThread-1", REFUSED)
    assert instance.elastic.withdraws(added, REFUSED)
    instance.crew.begin_to_remove(added)
    instance.run(100, lag=5_000, rate=100)
    assert (len(instance.crew.names), instance.metric("threads-withdrawn-total")) == (1, 1)
    instance.run(30, lag=5_000, rate=100)
    assert len(instance.crew.names) == 2


def test_a_session_that_refuses_at_once_is_asked_again_later() -> None:
    instance = Instance()
    instance.crew.error = REFUSED
    instance.run(60, lag=5_000, rate=100)
    instance.crew.error = None
    instance.run(60, lag=5_000, rate=100)
    assert len(instance.crew.names) == 1
    instance.run(30, lag=5_000, rate=100)
    assert len(instance.crew.names) > 1


def test_nothing_is_changed_while_the_application_starts_closes_or_shuts_down() -> None:
    instance = Instance()
    with ThreadPoolExecutor(1) as other:
        other.submit(instance.gate.acquire).result()
        instance.run(60, lag=5_000, rate=100)
        other.submit(instance.gate.release).result()
    instance.crew.shutdown_why = "test"
    instance.run(60, lag=5_000, rate=100)
    instance.crew.shutdown_why = None
    instance.states.become(ClientState.PENDING_SHUTDOWN, "test")
    instance.run(60, lag=5_000, rate=100)
    assert len(instance.crew.names) == 1


def test_a_fixed_number_stays_and_has_no_metrics() -> None:
    instance = Instance(num_stream_threads=2)
    instance.run(60, lag=5_000, rate=100)
    assert (len(instance.crew.names), instance.elastic.metrics()) == (1, [])
    assert instance.elastic.view() is None


@pytest.mark.parametrize(
    ("hosts", "standbys", "stays"),
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
def test_a_thread_goes_whose_host_keeps_its_state_for_another(
    hosts: dict[str, str], standbys: int, stays: list[int]
) -> None:
    """Or whose tasks have standbys elsewhere."""
    instance = Instance(hosts, num_standby_replicas=standbys)
    while len(instance.crew.names) < len(hosts):
        instance.crew.begin_to_add(0)
    instance.run(140)
    assert instance.crew.names == [f"app-StreamThread-{number}" for number in stays]
