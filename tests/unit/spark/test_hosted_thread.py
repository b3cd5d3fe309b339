"""When a stream thread is submitted again, given up, or killed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from support.waiting import HANG_S, NEVER_S, wait_for

from millstream.clock import ManualClock
from millstream.errors import BrokerUnavailableError, SparkError
from millstream.runtime.thread_control import Close
from millstream.spark.connection.messages import Epoch, Hello, ThreadExit
from millstream.spark.hosted_thread import HostedThread, RestartPolicy, ThreadTimeouts
from millstream.spark.thread_events import ThreadEvent

HELLO = Hello("shop", "t1", 1, Epoch(1, 0), 4711, "host")
#: Backoffs of at most a millisecond.
WITHOUT_BACKOFF = RestartPolicy(backoff_ms=1, max_backoff_ms=1)
LOST = SparkError("The Spark job of the stream thread ended unexpectedly: worker lost")


class Jobs:
    """The part of Spark that hosts a thread: each job executes the next given function."""

    alive = True

    def __init__(self, *jobs: Callable[[], ThreadExit]) -> None:
        self.todo = list(jobs)
        self.submitted = 0
        self.preferred_host: list[str | None] = []
        self.cancelled = threading.Event()

    def run(self, *_: Any, preferred_host: str | None, **__: Any) -> ThreadExit:
        self.submitted += 1
        self.preferred_host.append(preferred_host)
        return self.todo[min(self.submitted, len(self.todo)) - 1]()

    def cancel(self, tag: str) -> None:
        self.cancelled.set()

    def running_tasks(self, tag: str) -> int:
        return 1

    def until_cancelled(self) -> ThreadExit:
        assert self.cancelled.wait(30)
        raise LOST


class Host:
    """A thread hosted on such jobs, on its own Python thread."""

    def __init__(self, jobs: Jobs, policy: RestartPolicy = WITHOUT_BACKOFF, **options: Any) -> None:
        self.events: list[ThreadEvent] = []
        self.clock = ManualClock()
        self.jobs = jobs
        server: Any = Mock()
        self.server = server
        self.connected = server.connected
        self.connected.return_value = True
        plans: Any = jobs
        self.thread = HostedThread(
            "t1",
            b"code",
            lambda submission: b"",
            {},
            plans,
            server,
            self.events.append,
            next_submission=lambda: 1,
            needed=lambda: 1,
            slots=lambda: 1,
            policy=policy,
            timeouts=ThreadTimeouts(),
            clock=self.clock,
            **options,
        )

    def start(self) -> None:
        threading.Thread(target=self.thread.run, daemon=True).start()

    def registers(self, then: Callable[[], ThreadExit]) -> Callable[[], ThreadExit]:
        """A job whose thread registers first."""

        def job() -> ThreadExit:
            self.thread.on_registered(HELLO)
            return then()

        return job

    def last(self) -> ThreadEvent:
        """The exit of the thread."""
        assert self.thread.wait_ended(HANG_S)
        return self.events[-1]


def is_lost() -> ThreadExit:
    raise LOST


def test_a_thread_that_has_run_once_is_restarted_without_limit() -> None:
    """Detects a limit on restarts: a thread that was lost 31 times is restarted once more."""
    jobs = Jobs()
    host = Host(jobs)
    restarted = [host.registers(is_lost), *[is_lost] * 15, *[host.registers(is_lost)] * 15]
    jobs.todo = [*restarted, host.registers(lambda: ThreadExit("closed"))]
    host.thread.run()
    assert host.last() == ThreadEvent("t1", "exited", ThreadExit("closed"))
    assert jobs.submitted == 32
    assert sum(event.kind == "restarting" for event in host.events) == 31


def test_a_restart_prefers_the_previous_host() -> None:
    """The engine's monitor looks the host up while the thread runs; without state it does not."""
    jobs = Jobs()
    placement = Mock(host=None)
    host = Host(jobs, placement=placement)

    def monitored() -> ThreadExit:
        placement.check.side_effect = lambda tag: setattr(placement, "host", "one")
        host.thread.check()
        return is_lost()

    jobs.todo = [is_lost, host.registers(monitored), lambda: ThreadExit("closed")]
    host.thread.run()
    assert jobs.preferred_host == [None, None, "one"]
    assert placement.await_host.call_count == 2
    bare = Jobs(is_lost, lambda: ThreadExit("closed"))
    Host(bare).thread.run()
    assert bare.preferred_host == [None, None]


def test_a_moving_thread_closes_and_is_restarted_elsewhere() -> None:
    """Its slot is reserved from its close to its registration; it does not wait for a host, and
    no second move begins in the meantime."""
    jobs, placement, claim = Jobs(), Mock(host="one"), Mock()
    host = Host(jobs, placement=placement)
    tags: list[str | None] = []

    def request_move() -> ThreadExit:
        tags.append(host.thread.running_tag)
        host.thread.move("its executor 1 is being decommissioned.", claim)
        tags.append(host.thread.running_tag)
        late = Mock()
        host.thread.move("again", late)
        late.release.assert_called_once()
        claim.release.assert_not_called()
        return ThreadExit("closed")

    def runs_there() -> ThreadExit:
        claim.release.assert_called_once()
        tags.append(host.thread.running_tag)
        return ThreadExit("closed")

    jobs.todo = [host.registers(request_move), host.registers(runs_there)]
    host.thread.run()
    assert host.last() == ThreadEvent("t1", "exited", ThreadExit("closed"))
    assert [event.data for event in host.events if event.kind == "restarting"] == [
        "its executor 1 is being decommissioned."
    ]
    host.server.send.assert_called_once_with("t1", Close())
    placement.await_host.assert_not_called()
    assert [tag is None for tag in tags] == [False, True, False]


def test_a_thread_that_is_closed_while_it_moves_stays_closed() -> None:
    """And the slot that was reserved for it is free."""
    jobs, claim = Jobs(), Mock()
    host = Host(jobs)

    def close_during_move() -> ThreadExit:
        host.thread.move("its executor 1 is being decommissioned.", claim)
        host.thread.request_close(Close(for_good=True))
        return ThreadExit("closed")

    jobs.todo = [host.registers(close_during_move)]
    host.thread.run()
    assert host.last() == ThreadEvent("t1", "exited", ThreadExit("closed"))
    assert jobs.submitted == 1
    claim.release.assert_called_once()


def test_a_thread_that_has_never_run_is_given_up() -> None:
    """A machine that cannot start workers must not cause an endless loop."""
    host = Host(Jobs(is_lost))
    host.thread.run()
    ended = host.last()
    assert ended.kind == "failed"
    assert "Spark cannot run stream thread t1: its job failed 5 times" in str(ended.data)
    assert "worker lost" in str(ended.data)


def test_a_replacement_of_a_thread_that_has_run_is_not_given_up() -> None:
    """Detects replacements that close an application because they are started during an outage."""
    jobs = Jobs(*[is_lost] * 10, lambda: ThreadExit("closed"))
    host = Host(jobs, has_run=True)
    host.thread.run()
    assert host.last().kind == "exited"
    assert jobs.submitted == 11


def test_a_thread_does_not_wait_for_an_ended_session() -> None:
    jobs = Jobs()
    host = Host(jobs)
    host.connected.return_value = False
    jobs.todo = [host.registers(is_lost)]
    jobs.alive = False
    host.thread.run()
    assert host.last().kind == "failed"
    assert "the Spark session was stopped" in str(host.last().data)


def test_a_thread_can_close_after_its_jvm_has_ended() -> None:
    """Detects a close that counts as unfinished because the JVM ended first: the thread had
    reported its exit."""
    jobs = Jobs()
    host = Host(jobs)
    calls = ("committed",)

    def jvm_ends() -> ThreadExit:
        jobs.alive = False
        host.thread.request_close(Close())
        late = threading.Timer(
            0.2, host.thread.on_exit_report, (HELLO, ThreadExit("closed", None, calls))
        )
        late.start()
        raise LOST

    jobs.todo = [host.registers(jvm_ends)]
    host.thread.run()
    assert host.last() == ThreadEvent("t1", "exited", ThreadExit("closed", None, calls))
    assert not host.thread.was_lost


def test_a_driver_can_stop_after_its_jvm() -> None:
    """A machine that shuts down signals all processes in arbitrary order: the thread has closed
    already."""
    jobs = Jobs()
    host = Host(jobs)

    def machine_stops() -> ThreadExit:
        jobs.alive = False
        host.thread.on_exit_report(HELLO, ThreadExit("lost", None, (), "SIGHUP"))
        threading.Timer(0.2, host.thread.request_close, (Close(),)).start()
        raise LOST

    jobs.todo = [host.registers(machine_stops)]
    host.thread.run()
    assert (host.last().kind, host.last().data.kind) == ("exited", "closed")
    assert not host.thread.was_lost


@pytest.mark.parametrize("where", ["before the first job", "between two jobs"])
def test_closing_does_not_wait_for_a_backoff(where: str) -> None:
    """Nothing is submitted anymore."""
    first = where == "before the first job"
    never_ms = int(NEVER_S * 1_000)
    policy = RestartPolicy(backoff_ms=never_ms, max_backoff_ms=never_ms)
    host = Host(Jobs(is_lost), policy, pause_ms=never_ms if first else 0)
    host.start()
    if not first:
        wait_for(lambda: any(e.kind == "restarting" for e in host.events), 30, "the backoff begins")
    host.thread.request_close(Close())
    assert host.last() == ThreadEvent("t1", "exited", ThreadExit("closed"))
    assert host.jobs.submitted == (0 if first else 1)


def test_an_ending_thread_is_killed_after_its_time() -> None:
    """Its job is cancelled when the time is over, not earlier, and it is not restarted."""
    jobs = Jobs()
    host = Host(jobs)
    jobs.todo = [host.registers(jobs.until_cancelled)]
    host.start()
    wait_for(lambda: jobs.submitted == 1 and host.thread.has_run, 30, "the thread is running")
    host.thread.check()
    host.thread.kill_after(30_000)
    host.clock.advance(29_999)
    host.thread.check()
    assert not jobs.cancelled.is_set()
    host.clock.advance(1)
    host.thread.check()
    ended = host.last()
    assert (ended.kind, ended.data.kind) == ("exited", "killed")
    assert jobs.submitted == 1


def test_the_time_to_end_does_not_apply_to_the_next_attempt() -> None:
    """A process that crashes while it is ending is restarted; the new process is not ending."""
    jobs = Jobs()
    host = Host(jobs)
    jobs.todo = [host.registers(jobs.until_cancelled)]
    host.start()
    wait_for(lambda: jobs.submitted == 1 and host.thread.has_run, 30, "the thread is running")
    host.thread.kill_after(30_000)
    host.thread.on_registered(HELLO)
    host.clock.advance(60_000)
    host.thread.check()
    assert not jobs.cancelled.is_set()
    host.thread.cancel()
    host.last()


def test_a_failed_commit_during_a_machine_stop_restarts_the_thread() -> None:
    """It is restarted and the reason is reported; if the user has closed it, the user gets the
    error."""
    failed = BrokerUnavailableError("no answer")
    lost = ThreadExit("lost", failed, reason="SIGTERM; while closing: no answer")
    jobs = Jobs()
    host = Host(jobs)
    jobs.todo = [host.registers(lambda: lost), lambda: lost]

    def lost_while_closing() -> ThreadExit:
        host.thread.request_close(Close())
        return lost

    jobs.todo.append(lost_while_closing)
    host.thread.run()
    reasons = [event.data for event in host.events if event.kind == "restarting"]
    assert reasons == ["the thread stopped: SIGTERM; while closing: no answer."] * 2
    assert host.last().data == ThreadExit("error", failed, reason=lost.reason)


def test_a_failing_end_releases_waiting_callers() -> None:
    """Detects waits for the start or end of a thread whose last step has failed."""
    host = Host(Jobs(lambda: ThreadExit("closed")))
    host.server.end_thread.side_effect = [None, OSError("the port is gone")]
    ended = threading.Thread(target=host.thread.run, daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", lambda args: None)
        ended.start()
        ended.join(30)
    assert host.thread.wait_ended(0)
    assert host.thread.is_finished
    assert host.thread.wait_started() is None
    assert host.last().kind == "exited"
