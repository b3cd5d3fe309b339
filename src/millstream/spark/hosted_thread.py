"""The driver's representation of a stream thread.

A stream thread runs as a Spark job, which is resubmitted when it is lost:

    submit ──► waiting for a slot ──► registered ──► ended
      ▲                │                  │            │
      │                ▼                  ▼            ├──► exited   closed, or an error as data
      │             failed          (disconnected)     │
      └──────── backoff, new epoch ◄──────┴────────────┴──► failed   Spark cannot run it

A thread that ends with a user error is not restarted here; the owner's uncaught-exception handler
decides what to do. The loss of a worker, executor or connection is an outage, after which the
thread is restarted without limit, with exponential backoff. A thread that Spark has never been able
to run fails. A thread on an executor that is being decommissioned is closed and resubmitted.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Final

from millstream.clock import Clock, Deadline
from millstream.errors import (
    EnvironmentMismatchError,
    NotEnoughSlotsError,
    SparkError,
    ThreadUnavailableError,
    text_of,
)
from millstream.log_format import short_name
from millstream.runtime.retry import Backoff
from millstream.runtime.thread_control import Close
from millstream.spark.connection.control_server import ControlServer
from millstream.spark.connection.messages import Hello, ThreadExit
from millstream.spark.jobs import SparkJobs
from millstream.spark.sessions.free_slots import FreeSlots, SlotClaim
from millstream.spark.thread_events import ThreadEvent

logger = logging.getLogger(__name__)

#: The reason for canceling a thread that does not close in time.
_KILLED: Final = "it did not close in time"

#: How long a thread may take to report its exit after the JVM has ended.
_EXIT_REPORT_TIMEOUT_S: Final = 12.0
_POLL_INTERVAL_S: Final = 0.05
#: How long the driver waits for a request to stop after its JVM has ended.
_LATE_STOP_S: Final = 2.0
#: How long to wait for the cluster manager to replace a lost executor on the same host.
_EXECUTOR_WAIT_S: Final = 5.0
_EXECUTOR_POLL_S: Final = 0.25


class ThreadPlacement:
    """Tracks the host of one stream thread, in Spark's spelling, across its jobs.

    Spark runs a task on any host unless its data has preferred locations. A thread's state is on
    the disk of the host where it last ran, so the job that restarts the thread prefers that host.
    Spark then waits up to `spark.locality.wait` (3 s) for a free slot on that host before it uses
    another one.
    """

    def __init__(self, name: str, jobs: SparkJobs) -> None:
        self._name = short_name(name)
        self._jobs = jobs
        #: The host where the thread last ran, which has its state; None if it never ran.
        self.host: str | None = None
        self._checked_tag: str | None = None

    def await_host(self, cancelled: threading.Event) -> None:
        """Wait up to 5 s for a new executor if the host has none."""
        until = time.monotonic() + _EXECUTOR_WAIT_S
        while self.host is not None and not self._has_executor(self.host):
            if cancelled.wait(_EXECUTOR_POLL_S) or time.monotonic() >= until:
                return

    def check(self, tag: str) -> None:
        """Update the host from the job with this tag.

        Called after the thread has registered. Calls are cheap.
        """
        if self._checked_tag == tag:
            return
        current = self._jobs.host_of(tag)
        if current is None:
            return
        self._checked_tag = tag
        previous, self.host = self.host, current
        if previous is None:
            logger.debug("%s has its state on %s", self._name, current)
        elif previous == current:
            logger.info("%s was restarted on %s, where its state is", self._name, current)
        else:
            logger.warning(
                "%s was restarted on %s, not on %s, where its state is: %s. State without a "
                "standby replica is restored from the changelogs. Give each host a spare task "
                "slot, or set num_standby_replicas.",
                self._name,
                current,
                previous,
                "no task slot was free there within spark.locality.wait"
                if self._has_executor(previous)
                else "Spark no longer has an executor there",
            )

    def _has_executor(self, host: str) -> bool:
        return host in self._jobs.hosts()


@dataclass(frozen=True)
class RestartPolicy:
    #: The backoff before the first restart, which doubles with each further restart.
    backoff_ms: int = 250
    max_backoff_ms: int = 10_000
    #: The backoff is reset after the thread has run for this long.
    reset_after_ms: int = 60_000
    #: How many jobs in a row may fail before the thread has registered for the first time. At this
    #: limit, Spark or the machine is considered unable to run the thread.
    max_failed_starts: int = 5


@dataclass(frozen=True)
class ThreadTimeouts:
    """The timeouts for a stream thread that is not connected to the driver."""

    register_ms: int = 30_000
    #: The timeout for a thread that has a task slot: starting the process may take long on a busy
    #: machine, or if Spark has to unpack the process's packages first.
    start_ms: int = 120_000
    #: Must be longer than the thread's own grace period.
    reconnect_ms: int = 90_000


@dataclass(eq=False, repr=False)
class HostedThread:
    """Runs a stream thread: submits its job, monitors it, and resubmits it.

    `run` needs a dedicated Python thread. The engine's monitor calls `check` a few times per
    second. All other methods are thread-safe.
    """

    name: str
    #: A pickled `ThreadMain`.
    code: bytes
    #: Returns the pickled plan for a submission number.
    plan_of: Callable[[int], bytes]
    versions: dict[str, str | None]
    jobs: SparkJobs
    server: ControlServer
    emit: Callable[[ThreadEvent], None]
    _: KW_ONLY
    #: Returns increasing numbers that all threads share, so that a later thread of the same name
    #: has later epochs.
    next_submission: Callable[[], int]
    #: Returns the current number of stream threads.
    needed: Callable[[], int]
    #: Returns the number of tasks that the session can run at a time.
    slots: Callable[[], int]
    policy: RestartPolicy
    timeouts: ThreadTimeouts
    clock: Clock
    #: Whether Spark has run this thread, or an earlier one of the same name, so that all failures
    #: count as outages.
    has_run: bool = False
    #: The delay before the first submission.
    pause_ms: int = 0
    #: The host with the thread's state; None without state or with a single host.
    placement: ThreadPlacement | None = None

    def __post_init__(self) -> None:
        # Makes job tags unique: the session may also run another instance of the same application.
        self._unique = secrets.token_hex(4)
        self._submission = 0
        self._backoff = Backoff(
            self.clock,
            initial_ms=self.policy.backoff_ms,
            max_ms=self.policy.max_backoff_ms,
            reset_after_ms=self.policy.reset_after_ms,
        )
        self._failed_starts = 0
        self._lock = threading.Lock()
        self._job_runs = False
        self._is_registered = False
        self._disconnected_since_ms: int | None = None
        self._reported_exit: ThreadExit | None = None
        self._stop_requested = threading.Event()
        self._close = Close()
        self._cancel_reason: str | None = None
        #: Why the thread is moving to another executor; None if it is not moving.
        self._move_reason: str | None = None
        self._claim: SlotClaim | None = None
        self._end_by: Deadline | None = None
        self._fatal_error: SparkError | None = None
        self._ended = threading.Event()
        #: Set once the thread has registered, or has ended without registering.
        self._started = threading.Event()
        self._failure: SparkError | None = None
        #: Whether the thread has ended and will not be restarted, so that its name is free.
        self.is_finished = False
        #: None while the thread runs, or if it failed.
        self.exit: ThreadExit | None = None
        #: The hello of the latest registration.
        self.last_hello: Hello | None = None

    # ---- the thread's own Python thread

    def run(self) -> None:
        try:
            event = self._run_until_finished()
        except Exception as error:
            # A bug in Millstream, but the owner must not wait forever for the thread.
            logger.exception("Hosting %s failed", self.name)
            message = f"Hosting stream thread {self.name} failed: {text_of(error)}"
            event = self._failed_event(SparkError(message))
        if isinstance(event.data, ThreadExit):
            self.exit = event.data
        if isinstance(event.data, SparkError):
            self._failure = event.data
        try:
            self._release_claim()
            self.server.end_thread(self.name, "its job has ended")
        finally:
            # Do this in any case, so that `wait_started` and `wait_ended` do not block forever.
            self.is_finished = True
            self._started.set()
            self.emit(event)
            self._ended.set()

    def _run_until_finished(self) -> ThreadEvent:
        self._stop_requested.wait(self.pause_ms / 1000)
        while True:
            if self._stop_requested.is_set():
                return ThreadEvent(self.name, "exited", ThreadExit("closed"))
            outcome = self._run_once()
            if isinstance(outcome, ThreadEvent):
                return outcome
            if not self.jobs.alive:
                # At shutdown, a machine signals all processes, and may signal the driver last.
                orderly = self._reported_exit is not None or not self._is_registered
                if orderly and self._stop_requested.wait(_LATE_STOP_S):
                    return self._requested_exit(self._reported_exit or ThreadExit("closed"))
                return self._failed_event(
                    SparkError(
                        f"Stream thread {self.name} cannot continue: the Spark session was stopped "
                        f"or its JVM ended. {outcome}"
                    )
                )
            if self._failed_too_often():
                return self._failed_event(
                    SparkError(
                        f"Spark cannot run stream thread {self.name}: its job failed "
                        f"{self._failed_starts} times before the thread registered with the "
                        f"driver. The last failure: {outcome} See the executors' logs for the "
                        "cause."
                    )
                )
            pause_ms = self._backoff.next_pause_ms()
            self.emit(ThreadEvent(self.name, "restarting", outcome))
            logger.info("%s will be restarted in %d ms", short_name(self.name), pause_ms)
            self._stop_requested.wait(pause_ms / 1000)
            if self.placement is not None and self._move_reason is None:
                self.placement.await_host(self._stop_requested)

    def _run_once(self) -> ThreadEvent | str:
        """Run one job.

        Returns the thread's final event, or the reason to restart the thread.
        """
        with self._lock:
            submission = self._submission = self.next_submission()
            self._is_registered = False
            self._reported_exit = None
            self._cancel_reason = None
            self._move_reason = None
            self._end_by = None
            self._disconnected_since_ms = self.clock.monotonic_ms()
            self._job_runs = True
        self.server.expect_thread(self.name, submission, self.code)
        try:
            exit_ = self.jobs.run(
                self.plan_of(submission),
                self.versions,
                tag=self._tag,
                description=self.name,
                preferred_host=None if self.placement is None else self.placement.host,
            )
        except EnvironmentMismatchError as error:
            return self._failed_event(error)
        except SparkError as error:
            reported = self._await_reported_exit()
            if reported is None:
                return self._on_job_failure(error)
            exit_ = reported
        finally:
            with self._lock:
                self._job_runs = False
            self.server.end_thread(self.name, f"submission {submission} has ended")
        if isinstance(exit_.error, EnvironmentMismatchError):
            return self._failed_event(exit_.error)
        if exit_.kind == "lost":
            if self._fatal_error is not None:
                return self._failed_event(self._fatal_error)
            if self._stop_requested.is_set():
                return self._requested_exit(exit_)
            return f"the thread stopped: {exit_.reason}."
        if exit_.kind == "closed" and self._move_reason and not self._stop_requested.is_set():
            return self._move_reason
        return ThreadEvent(self.name, "exited", exit_)

    def _await_reported_exit(self) -> ThreadExit | None:
        """Return the exit that the thread reported, if its job ended without a result."""
        # When the JVM ends, the thread is still connected while it closes.
        if not self.jobs.alive:
            deadline = time.monotonic() + _EXIT_REPORT_TIMEOUT_S
            while self._reported_exit is None and time.monotonic() < deadline:
                if not self._is_registered or not self.server.connected(self.name):
                    break
                time.sleep(_POLL_INTERVAL_S)
        return self._reported_exit

    def _requested_exit(self, exit_: ThreadExit) -> ThreadEvent:
        requested = replace(exit_, kind="closed" if exit_.error is None else "error")
        return ThreadEvent(self.name, "exited", requested)

    def _on_job_failure(self, error: SparkError) -> ThreadEvent | str:
        if self._fatal_error is not None:
            return self._failed_event(self._fatal_error)
        reason = self._cancel_reason
        if self._stop_requested.is_set():
            was_killed = reason is None or self._is_registered
            killed = ThreadExit("killed", reason=reason or str(error))
            return ThreadEvent(self.name, "exited", killed if was_killed else ThreadExit("closed"))
        return f"{reason or error.message}."

    def _failed_too_often(self) -> bool:
        """Count a failed job.

        Returns whether a thread that has never run failed too often.
        """
        self._failed_starts = 0 if self.has_run else self._failed_starts + 1
        return self._failed_starts > 0 and self._failed_starts >= self.policy.max_failed_starts

    def _failed_event(self, error: SparkError) -> ThreadEvent:
        return ThreadEvent(self.name, "failed", error)

    # ---- thread-safe methods

    def on_registered(self, hello: Hello) -> None:
        with self._lock:
            again = self._is_registered
            self._is_registered = True
            self.has_run = True
            self._end_by = None
            self._disconnected_since_ms = None
            self._move_reason = None
            self.last_hello = hello
            # Take the claim before the thread can be moved again, with another claim.
            claim, self._claim = self._claim, None
        if claim is not None:
            claim.release()
        # Set this before emitting events, which may block: the owner may be waiting for the start.
        self._started.set()
        if again:
            reason = "its process ended and Spark restarted the task."
            self.emit(ThreadEvent(self.name, "restarting", reason))
        self.emit(ThreadEvent(self.name, "registered", hello))
        if self._stop_requested.is_set():
            self._send_close()

    def on_exit_report(self, hello: Hello, exit_: ThreadExit) -> None:
        with self._lock:
            if hello.epoch.submission == self._submission:
                self._reported_exit = exit_

    def request_close(self, command: Close) -> None:
        """Send the close command, and do not restart the thread. Idempotent."""
        if self._stop_requested.is_set():
            return
        self._close = command
        self._stop_requested.set()
        self.server.stop_admitting(self.name, "the thread is closing")
        self._send_close()

    @property
    def running_tag(self) -> str | None:
        """The tag of the running job.

        None if the thread is closing, moving or not registered.
        """
        with self._lock:
            stays = self._move_reason is None and not self._stop_requested.is_set()
            return self._tag if stays and self._job_runs and self._is_registered else None

    def move(self, reason: str, claim: SlotClaim) -> None:
        """Make the thread commit, leave the group, and continue on another executor.

        The reason is a sentence. The claim to the new slot is released when the thread registers.
        """
        with self._lock:
            if self._stop_requested.is_set() or not self._is_registered or self._move_reason:
                claim.release()
                return
            self._move_reason, self._claim = reason, claim
        logger.info("%s moves: %s", short_name(self.name), reason)
        self._send_close()

    def cancel(self) -> None:
        self.request_close(self._close)
        self._cancel(_KILLED)

    def kill_after(self, within_ms: int) -> None:
        """Kill the thread if it has not ended after `within_ms`.

        The thread is already ending by itself.
        """
        with self._lock:
            if self._job_runs:
                self._end_by = Deadline(self.clock, within_ms)

    def wait_started(self) -> SparkError | None:
        """Wait until the thread has registered or ended.

        Returns the error if the thread never ran.
        """
        self._started.wait()
        return None if self.has_run else self._failure

    def wait_ended(self, timeout_s: float | None) -> bool:
        """Wait until the thread has exited or failed and its last event has been emitted."""
        return self._ended.wait(timeout_s)

    @property
    def was_killed(self) -> bool:
        """Whether the thread was killed, or has not ended yet."""
        return not self.ended or (self.exit is not None and self.exit.kind == "killed")

    @property
    def was_lost(self) -> bool:
        """Whether Spark lost the thread before it ended.

        The work of a lost thread was not committed.
        """
        return self.ended and self.exit is None and self.has_run

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def check(self) -> None:
        """Cancel the job if the thread has been disconnected or ending for too long."""
        with self._lock:
            if not self._job_runs:
                return
            if self.server.connected(self.name):
                self._disconnected_since_ms = None
            elif self._disconnected_since_ms is None:
                self._disconnected_since_ms = self.clock.monotonic_ms()
            since_ms = self._disconnected_since_ms
            registered = self._is_registered
            late = self._end_by is not None and self._end_by.passed
        if registered and self.placement is not None:
            self.placement.check(self._tag)
        if self._cancel_reason is not None:
            # Repeated, because a job cannot be canceled by its tag before it is submitted.
            self.jobs.cancel(self._tag)
        elif late:
            logger.warning("%s failed and did not close in time, so it is killed", self.name)
            self.cancel()
        elif since_ms is not None:
            self._check_disconnected(self.clock.monotonic_ms() - since_ms, registered)

    def _check_disconnected(self, waited_ms: int, registered: bool) -> None:
        if self._stop_requested.is_set() and not registered and not self._has_slot():
            self._cancel("it never ran")
        elif registered and waited_ms >= self.timeouts.reconnect_ms:
            self._cancel(f"the thread did not reconnect within {waited_ms} ms")
        elif not registered and not self._may_register_yet(waited_ms):
            if self.has_run:
                self._cancel(f"the thread did not register again within {waited_ms} ms")
            else:
                self._fatal_error = self._never_registered(waited_ms)
                self._cancel("the thread never registered")

    def _may_register_yet(self, waited_ms: int) -> bool:
        timeouts = self.timeouts
        return waited_ms < timeouts.register_ms or (
            waited_ms < timeouts.start_ms and self._has_slot()
        )

    def _never_registered(self, waited_ms: int) -> SparkError:
        seconds = f"{waited_ms / 1000:.0f} s"
        if self._has_slot():
            host, port = self.server.address
            if host.startswith("127."):
                return SparkError(
                    f"Stream thread {self.name} has a task slot but has not registered within "
                    f"{seconds}: this machine is probably too busy to start the thread's Python "
                    "process in that time. Restart the application when the machine is less busy."
                )
            return SparkError(
                f"Stream thread {self.name} has a task slot but has not registered within "
                f"{seconds}: its executor probably cannot reach the driver at {host}:{port}. "
                "Check spark.driver.host and firewalls; see the executor's log for details."
            )
        slots, needed = self.slots(), self.needed()
        return NotEnoughSlotsError(
            f"Stream thread {self.name} did not get a task slot within {seconds}: the Spark "
            f"session has {slots} slots, the stream threads need {needed}, and other jobs may "
            "occupy some. Give the session more cores (for example local[N] with a larger N, or "
            "more executors), or run fewer stream threads.",
            slots=slots,
            needed=needed,
        )

    def _has_slot(self) -> bool:
        return self.jobs.running_tasks(self._tag) > 0

    def _cancel(self, reason: str) -> None:
        self._cancel_reason = reason
        self.jobs.cancel(self._tag)

    def _release_claim(self) -> None:
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.release()

    def _send_close(self) -> None:
        try:
            self.server.send(self.name, self._close)
        except ThreadUnavailableError:
            # The server will reject the thread's registration, or `check` will cancel its job.
            logger.debug("%s is not registered, so it was not sent the close command", self.name)

    @property
    def _tag(self) -> str:
        return f"{self.name}-{self._unique}-{self._submission}"


#: How often to check for decommissioning. Nodes are terminated with a notice of 30 s or more.
_DECOMMISSION_CHECK_MS: Final = 1_000


class DecommissionMonitor:
    """Moves stream threads off executors that are being decommissioned.

    Spark kills such an executor soon, so a thread moves once a slot is free. A thread that commits,
    leaves the group and continues elsewhere costs one rebalance. If a thread is killed with its
    executor, its loss is detected only after the session timeout, and its uncommitted work is
    repeated. If no slot is free, a thread continues until its executor is killed.
    """

    def __init__(
        self, jobs: SparkJobs, claim: Callable[[], SlotClaim | FreeSlots], clock: Clock
    ) -> None:
        self._jobs = jobs
        self._claim = claim
        self._clock = clock
        self._is_enabled = jobs.decommissioning_enabled
        self._next_ms = 0
        #: The executor of each thread, by the tag of its job.
        self._executors: dict[str, str] = {}
        self._without_slot: set[str] = set()

    def check(self, threads: Iterable[HostedThread]) -> None:
        """Move threads if necessary. Cheap; not thread-safe."""
        now_ms = self._clock.monotonic_ms()
        if not self._is_enabled or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + _DECOMMISSION_CHECK_MS
        running = {thread.running_tag: thread for thread in threads}
        self._executors = {
            tag: executor
            for tag in running
            if tag is not None
            and (executor := self._executors.get(tag) or self._jobs.executor_of(tag)) is not None
        }
        self._without_slot &= self._executors.keys()
        leaving = {
            each for each in set(self._executors.values()) if self._jobs.is_decommissioned(each)
        }
        for tag, executor in self._executors.items():
            if executor in leaving:
                self._move(running[tag], tag, executor)

    def _move(self, thread: HostedThread, tag: str, executor: str) -> None:
        claim = self._claim()
        if isinstance(claim, SlotClaim):
            thread.move(f"its executor {executor} is being decommissioned.", claim)
        elif tag not in self._without_slot:
            self._without_slot.add(tag)
            logger.warning(
                "%s is on executor %s, which is being decommissioned, and no other executor has a "
                "free task slot: it continues until the executor is gone or a slot is free. Give "
                "the application some spare slots.",
                short_name(thread.name),
                executor,
            )
