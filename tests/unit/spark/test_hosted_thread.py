"""When a stream thread is submitted again, when it is given up, and when it is killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from support.waiting import wait_for

from millstream.clock import ManualClock
from millstream.errors import BrokerUnavailableError, SparkError
from millstream.runtime.control import Close
from millstream.spark.connection.messages import Epoch, Hello, ThreadExit
from millstream.spark.events import ThreadEvent
from millstream.spark.hosted_thread import HostedThread
from millstream.spark.patience import Patience, RestartPolicy

HELLO = Hello("shop", "t1", 1, Epoch(1, 0), 4711, "host")
#: The first pause is a millisecond and none is longer.
AT_ONCE = RestartPolicy(backoff_ms=1, max_backoff_ms=1)
LOST = SparkError("The Spark job of the stream thread ended unexpectedly: worker lost")


class Jobs:
    """Spark, as far as a thread sees it: each job does the next of the given things."""

    alive = True

    def __init__(self, *jobs: Callable[[], ThreadExit]) -> None:
        self.todo = list(jobs)
        self.submitted = 0
        self.near: list[str | None] = []
        self.cancelled = threading.Event()

    def run(self, *_: Any, near: str | None, **__: Any) -> ThreadExit:
        self.submitted += 1
        self.near.append(near)
        return self.todo[min(self.submitted, len(self.todo)) - 1]()

    def cancel(self, tag: str) -> None:
        self.cancelled.set()

    def running_tasks(self, tag: str) -> int:
        return 1

    def until_cancelled(self) -> ThreadExit:
        assert self.cancelled.wait(30)
        raise LOST


class Host:
    """A thread hosted on such jobs, on a Python thread of its own."""

    def __init__(self, jobs: Jobs, policy: RestartPolicy = AT_ONCE, **options: Any) -> None:
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
            patience=Patience(),
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
        """How it ended."""
        assert self.thread.wait_ended(30)
        return self.events[-1]


def is_lost() -> ThreadExit:
    raise LOST


def test_what_spark_has_run_once_is_started_again_without_end() -> None:
    """Hunts for a bound on outages: after 30 deaths the thread still comes back."""
    jobs = Jobs()
    host = Host(jobs)
    again = [host.registers(is_lost), *[is_lost] * 15, *[host.registers(is_lost)] * 15]
    jobs.todo = [*again, host.registers(lambda: ThreadExit("closed"))]
    host.thread.run()
    assert host.last() == ThreadEvent("t1", "exited", ThreadExit("closed"))
    assert jobs.submitted == 32
    assert sum(event.kind == "restarting" for event in host.events) == 31


def test_it_asks_for_the_host_where_it_ran_last() -> None:
    """That is looked up while it runs, by the engine's monitor; without state nothing is."""
    jobs = Jobs()
    placement = Mock(host=None)
    host = Host(jobs, placement=placement)

    def looked_after() -> ThreadExit:
        placement.look.side_effect = lambda tag: setattr(placement, "host", "one")
        host.thread.check()
        return is_lost()

    jobs.todo = [is_lost, host.registers(looked_after), lambda: ThreadExit("closed")]
    host.thread.run()
    assert jobs.near == [None, None, "one"]
    assert placement.await_host.call_count == 2
    bare = Jobs(is_lost, lambda: ThreadExit("closed"))
    Host(bare).thread.run()
    assert bare.near == [None, None]


def test_a_thread_that_moves_closes_and_runs_again_elsewhere() -> None:
    """Its slot is kept from when it closes until it has registered; no host is waited for, and no
    second move begins meanwhile."""
    jobs, placement, claim = Jobs(), Mock(host="one"), Mock()
    host = Host(jobs, placement=placement)
    tags: list[str | None] = []

    def told_to_move() -> ThreadExit:
        tags.append(host.thread.running_tag)
        host.thread.move("its executor 1 is decommissioned.", claim)
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

    jobs.todo = [host.registers(told_to_move), host.registers(runs_there)]
    host.thread.run()
    assert host.last() == ThreadEvent("t1", "exited", ThreadExit("closed"))
    assert [event.data for event in host.events if event.kind == "restarting"] == [
        "its executor 1 is decommissioned."
    ]
    host.server.send.assert_called_once_with("t1", Close())
    placement.await_host.assert_not_called()
    assert [tag is None for tag in tags] == [False, True, False]


def test_a_thread_that_is_closed_while_it_moves_stays_closed() -> None:
    """And the slot that was kept for it is free."""
    jobs, claim = Jobs(), Mock()
    host = Host(jobs)

    def told_to_close() -> ThreadExit:
        host.thread.move("its executor 1 is decommissioned.", claim)
        host.thread.ask_to_close(Close(for_good=True))
        return ThreadExit("closed")

    jobs.todo = [host.registers(told_to_close)]
    host.thread.run()
    assert host.last() == ThreadEvent("t1", "exited", ThreadExit("closed"))
    assert jobs.submitted == 1
    claim.release.assert_called_once()


def test_what_spark_has_never_run_is_given_up() -> None:
    """A machine on which no worker starts must not be an endless loop that looks like one."""
    host = Host(Jobs(is_lost))
    host.thread.run()
    ended = host.last()
    assert ended.kind == "failed"
    assert "Spark cannot run stream thread t1: its job failed 5 times" in str(ended.data)
    assert "worker lost" in str(ended.data)


def test_a_thread_that_takes_the_place_of_one_that_ran_is_not_given_up() -> None:
    """Hunts for replacements that end an application because they come during an outage."""
    jobs = Jobs(*[is_lost] * 10, lambda: ThreadExit("closed"))
    host = Host(jobs, proven=True)
    host.thread.run()
    assert host.last().kind == "exited"
    assert jobs.submitted == 11


def test_a_session_that_has_ended_is_not_waited_for() -> None:
    jobs = Jobs()
    host = Host(jobs)
    host.connected.return_value = False
    jobs.todo = [host.registers(is_lost)]
    jobs.alive = False
    host.thread.run()
    assert host.last().kind == "failed"
    assert "the Spark session was stopped" in str(host.last().data)


def test_a_thread_that_closes_after_its_jvm_has_ended_in_order() -> None:
    """Hunts for a close that is said to be unfinished because the JVM ended first: the thread has
    told how it ended."""
    jobs = Jobs()
    host = Host(jobs)
    story = ("committed",)

    def jvm_ends() -> ThreadExit:
        jobs.alive = False
        host.thread.ask_to_close(Close())
        late = threading.Timer(0.2, host.thread.on_told, (HELLO, ThreadExit("closed", None, story)))
        late.start()
        raise LOST

    jobs.todo = [host.registers(jvm_ends)]
    host.thread.run()
    assert host.last() == ThreadEvent("t1", "exited", ThreadExit("closed", None, story))
    assert not host.thread.was_lost


def test_a_driver_that_is_told_to_stop_after_its_jvm_does_so_in_order() -> None:
    """A machine that stops tells all processes, in no order: the thread has closed already."""
    jobs = Jobs()
    host = Host(jobs)

    def machine_stops() -> ThreadExit:
        jobs.alive = False
        host.thread.on_told(HELLO, ThreadExit("lost", None, (), "SIGHUP"))
        threading.Timer(0.2, host.thread.ask_to_close, (Close(),)).start()
        raise LOST

    jobs.todo = [host.registers(machine_stops)]
    host.thread.run()
    assert (host.last().kind, host.last().data.kind) == ("exited", "closed")
    assert not host.thread.was_lost


@pytest.mark.parametrize("where", ["before the first job", "between two jobs"])
def test_closing_does_not_wait_for_a_pause(where: str) -> None:
    """Nothing is submitted any more."""
    first = where == "before the first job"
    policy = RestartPolicy(backoff_ms=60_000, max_backoff_ms=60_000)
    host = Host(Jobs(is_lost), policy, pause_ms=60_000 if first else 0)
    began = time.monotonic()
    host.start()
    if not first:
        wait_for(lambda: any(e.kind == "restarting" for e in host.events), 30, "the pause")
    host.thread.ask_to_close(Close())
    assert host.last() == ThreadEvent("t1", "exited", ThreadExit("closed"))
    assert host.jobs.submitted == (0 if first else 1)
    assert time.monotonic() - began < 30


def test_a_thread_that_is_ending_and_does_not_end_is_killed() -> None:
    """Its job is cancelled when its time is over, not before, and it is not started again."""
    jobs = Jobs()
    host = Host(jobs)
    jobs.todo = [host.registers(jobs.until_cancelled)]
    host.start()
    wait_for(lambda: jobs.submitted == 1 and host.thread.proven, 30, "it runs")
    host.thread.check()
    host.thread.expect_end(30_000)
    host.clock.advance(29_999)
    host.thread.check()
    assert not jobs.cancelled.is_set()
    host.clock.advance(1)
    host.thread.check()
    ended = host.last()
    assert (ended.kind, ended.data.kind) == ("exited", "killed")
    assert jobs.submitted == 1


def test_the_time_for_ending_is_not_the_next_attempts() -> None:
    """A process that dies while it ends is started again: that one is not ending."""
    jobs = Jobs()
    host = Host(jobs)
    jobs.todo = [host.registers(jobs.until_cancelled)]
    host.start()
    wait_for(lambda: jobs.submitted == 1 and host.thread.proven, 30, "it runs")
    host.thread.expect_end(30_000)
    host.thread.on_registered(HELLO)
    host.clock.advance(60_000)
    host.thread.check()
    assert not jobs.cancelled.is_set()
    host.thread.cancel()
    host.last()


def test_a_commit_that_fails_while_the_machine_stops_a_thread_is_a_reason_to_go_on() -> None:
    """It is started again and the reason is told; if it was to close, the error is the user's."""
    failed = BrokerUnavailableError("no answer")
    lost = ThreadExit("lost", failed, reason="SIGTERM; while closing: no answer")
    jobs = Jobs()
    host = Host(jobs)
    jobs.todo = [host.registers(lambda: lost), lambda: lost]

    def lost_while_closing() -> ThreadExit:
        host.thread.ask_to_close(Close())
        return lost

    jobs.todo.append(lost_while_closing)
    host.thread.run()
    reasons = [event.data for event in host.events if event.kind == "restarting"]
    assert reasons == ["the thread stopped: SIGTERM; while closing: no answer."] * 2
    assert host.last().data == ThreadExit("error", failed, reason=lost.reason)


def test_a_thread_that_ends_badly_keeps_nobody_waiting() -> None:
    """Hunts waits for the start or the end of a thread whose last step has failed."""
    host = Host(Jobs(lambda: ThreadExit("closed")))
    host.server.forget.side_effect = [None, OSError("the port is gone")]
    ended = threading.Thread(target=host.thread.run, daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", lambda args: None)
        ended.start()
        ended.join(30)
    assert host.thread.wait_ended(0)
    assert host.thread.is_over
    assert host.thread.wait_started() is None
    assert host.last().kind == "exited"
