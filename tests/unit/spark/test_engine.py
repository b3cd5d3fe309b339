"""The engine with jobs that are Python functions; threads register over real connections."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from support.waiting import stays, wait_for

from millstream.clock import ManualClock
from millstream.errors import IllegalStateError, SparkError
from millstream.spark import engine as engine_module
from millstream.spark.connection.control_client import ControlChannel
from millstream.spark.connection.messages import Epoch, Hello, ThreadExit
from millstream.spark.engine import SparkEngine
from millstream.spark.thread_events import ThreadEvent

GRACE_MS = 1_000


class Jobs:
    """The job part of Spark: each job is a worker that registers and ends on a command or when
    cancelled."""

    alive = True
    decommissioning_enabled = False

    def __init__(self) -> None:
        self.channels: list[ControlChannel] = []
        self.cancelled = threading.Event()
        self.cancels = 0
        self.ends = threading.Event()

    def run(self, data: bytes, *_: Any, **__: Any) -> ThreadExit:
        plan = pickle.loads(data)
        epoch = Epoch(plan.epoch, 0)
        hello = Hello("shop", plan.thread_name, plan.thread_index, epoch, 4711, "elsewhere")
        channel = ControlChannel(plan.control_address, plan.authkey, hello, grace_ms=GRACE_MS)
        self.channels.append(channel)
        assert channel.open()
        while not (self.ends.is_set() or self.cancelled.is_set() or channel.wait(20)):
            pass
        channel.close()
        if self.cancelled.is_set():
            self.cancelled.clear()
            raise SparkError("The job was cancelled.")
        return ThreadExit("closed")

    def cancel(self, tag: str) -> None:
        self.cancels += 1
        self.cancelled.set()

    def running_tasks(self, tag: str) -> int:
        return 1


class Bench:
    """An engine with such jobs, whose session records whether it was released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs = Jobs()
        self.is_released = 0
        self.events: list[ThreadEvent] = []
        self.clock = ManualClock()
        session = Mock()
        session.session.sparkContext.master = "local[4]"
        session.release = self._release
        monkeypatch.setattr(engine_module, "resolve_session", lambda *_: session)
        monkeypatch.setattr(engine_module, "SparkJobs", lambda *_: self.jobs)
        self.engine = SparkEngine(
            None,
            "shop",
            num_threads=2,
            on_event=self.events.append,
            grace_ms=GRACE_MS,
            clock=self.clock,
        )

    def _release(self) -> bool:
        self.is_released += 1
        return False

    def kinds(self, name: str = "t1") -> list[str]:
        return [event.kind for event in self.events if event.thread == name]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = Bench(monkeypatch)
    bench.engine.start()
    yield bench
    bench.engine.close(20_000)


def no_threads(monkeypatch: pytest.MonkeyPatch, which: Callable[[str], bool]) -> None:
    """Simulate a machine that cannot start Python threads with these names."""
    start = threading.Thread.start

    def refuses(self: threading.Thread) -> None:
        if which(self.name):
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuses)


def test_a_thread_runs_until_it_is_closed(bench: Bench) -> None:
    bench.engine.start_thread("t1", 1, b"code")
    assert bench.engine.await_start("t1") is None
    assert bench.engine.close(20_000)
    assert bench.kinds() == ["registered", "exited"]
    assert bench.is_released == 1


def test_a_thread_that_cannot_be_hosted_is_not_started(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Detects a thread that does not run, but that its removal and the close wait for."""
    with monkeypatch.context() as patch:
        no_threads(patch, lambda name: name == "t1-job")
        with pytest.raises(RuntimeError, match="new thread"):
            bench.engine.start_thread("t1", 1, b"code")
    assert bench.engine.threads == []
    assert bench.engine.await_end("t1", 0)
    assert bench.engine.await_start("t1") is None
    bench.engine.start_thread("t1", 1, b"code")
    assert bench.engine.await_start("t1") is None


def test_no_thread_is_started_by_a_closing_engine(bench: Bench) -> None:
    assert bench.engine.close(20_000)
    with pytest.raises(IllegalStateError, match="not running"):
        bench.engine.start_thread("t1", 1, b"code")


@pytest.mark.parametrize("broken", ["_stop", "_end_monitor"])
def test_a_failed_close_releases_the_session(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """Detects a Spark session that is never stopped, because the next close would do nothing."""
    bench.engine.start_thread("t1", 1, b"code")
    bench.engine.await_start("t1")

    def fail(*_: object) -> bool:
        raise RuntimeError("Spark does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(bench.engine, broken, fail)
        with pytest.raises(RuntimeError, match="does not answer"):
            bench.engine.close(20_000)
    assert bench.is_released == 1
    bench.jobs.ends.set()


def test_a_failed_start_releases_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    monkeypatch.setattr(engine_module, "is_local", Mock(side_effect=RuntimeError("py4j")))
    with pytest.raises(RuntimeError, match="py4j"):
        bench.engine.start()
    assert bench.is_released == 1


def test_an_incompletely_started_engine_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Detects a close that releases nothing because a thread that it waits for was never
    started."""
    bench = Bench(monkeypatch)
    with monkeypatch.context() as patch:
        no_threads(patch, lambda name: name == "millstream-events")
        with pytest.raises(RuntimeError, match="new thread"):
            bench.engine.start()
    assert bench.engine.close(20_000)
    assert bench.is_released == 1


def test_a_lost_thread_is_cancelled_after_three_grace_periods(bench: Bench) -> None:
    """Detects a slot that a lost thread occupies for minutes, and a thread that is killed while
    it is still working."""
    bench.engine.start_thread("t1", 1, b"code")
    assert bench.engine.await_start("t1") is None
    (channel,) = bench.jobs.channels
    wait_for(lambda: channel.connected, 20, "the thread is connected")
    channel.close(0)
    wait_for(lambda: not channel.connected, 20, "the connection is gone")
    lost_ms = bench.clock.monotonic_ms()
    # The monitor must notice the lost connection before the time counts.
    assert stays(lambda: not bench.jobs.cancels, 0.6)
    bench.clock.advance(3 * GRACE_MS - 1)
    assert stays(lambda: not bench.jobs.cancels, 0.6)
    bench.clock.advance(2)
    wait_for(lambda: "restarting" in bench.kinds(), 20, "the thread is restarted")
    assert bench.clock.monotonic_ms() - lost_ms == 3 * GRACE_MS + 1
    why = next(event.data for event in bench.events if event.kind == "restarting")
    assert "did not reconnect" in why
