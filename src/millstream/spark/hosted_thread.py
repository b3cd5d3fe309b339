"""One stream thread as the driver sees it: a Spark job that is submitted again when it dies.

    submit ──► waiting for a slot ──► registered ──► ended
      ▲                │                  │            │
      │                ▼                  ▼            ├──► exited   closed, or an error as data
      │             failed          (out of reach)     │
      └──────── backoff, new epoch ◄──────┴────────────┴──► failed   Spark cannot run it

A user error is an orderly end and is not retried here: what follows from it is decided by the
owner's uncaught-exception handler. A worker, executor or connection that is lost is an outage,
which is waited out: the thread is started again without end, with growing pauses. What Spark has
never been able to run fails. A thread whose executor is to go closes, and is submitted again, too.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from millstream.clock import Clock, Deadline
from millstream.errors import (
    EnvironmentMismatchError,
    NotEnoughSlotsError,
    SparkError,
    ThreadUnavailableError,
    text_of,
)
from millstream.runtime.backoff import Backoff
from millstream.runtime.control import Close
from millstream.spark.connection.control_server import ControlServer
from millstream.spark.connection.messages import Hello, ThreadExit
from millstream.spark.events import ThreadEvent
from millstream.spark.jobs import SparkJobs
from millstream.spark.patience import Patience, RestartPolicy
from millstream.spark.placement import Placement
from millstream.spark.sessions.free_slots import SlotClaim
from millstream.spark.worker.worker_logging import short_name

logger = logging.getLogger(__name__)

#: Why a thread is cancelled when it does not close in time.
_KILLED: Final = "it did not close in time"

#: How long a thread whose JVM has ended may take to close in order.
_LAST_WORDS_S: Final = 12.0
_LISTEN_S: Final = 0.05
#: How much later than its JVM a driver may be told to stop.
_TOLD_LAST_S: Final = 2.0


class HostedThread:
    """A stream thread: submits its job, watches it, submits it again.

    `run` belongs to a Python thread of its own; `check` is called a few times a second by the
    engine's monitor; the rest may be called from anywhere.

    Args:
        name: the thread's name.
        code: a pickled `ThreadMain`.
        plan_of: the pickled plan for a submission's number.
        versions: the driver's, see `environment`.
        jobs: where it runs.
        server: where it registers.
        emit: takes its events.
        next_submission: numbers the jobs of all threads, so that a later thread of the same name
            has later epochs.
        needed: how many stream threads there are now.
        slots: how many tasks the session can run at a time.
        policy: when it is started again.
        patience: how long it may be out of reach.
        clock: for intervals.
        proven: whether Spark has run a thread of this name before: then what goes wrong is an
            outage from the beginning.
        pause_ms: how long it waits before it is submitted for the first time.
        placement: the host that has its state; None if it keeps none, or there is one host only.
    """

    def __init__(
        self,
        name: str,
        code: bytes,
        plan_of: Callable[[int], bytes],
        versions: dict[str, str | None],
        jobs: SparkJobs,
        server: ControlServer,
        emit: Callable[[ThreadEvent], None],
        *,
        next_submission: Callable[[], int],
        needed: Callable[[], int],
        slots: Callable[[], int],
        policy: RestartPolicy,
        patience: Patience,
        clock: Clock,
        proven: bool = False,
        pause_ms: int = 0,
        placement: Placement | None = None,
    ) -> None:
        self.name = name
        self._code = code
        self._plan_of = plan_of
        self._versions = versions
        self._jobs = jobs
        self._server = server
        self._emit = emit
        self._next_submission = next_submission
        self._needed = needed
        self._slots = slots
        self._policy = policy
        self._patience = patience
        self._clock = clock
        # A session may be shared with another instance of the same application.
        self._unique = secrets.token_hex(4)
        self._submission = 0
        self._pause_ms = pause_ms
        #: Where it has its state.
        self.placement = placement
        self._backoff = Backoff(
            clock,
            first_ms=policy.backoff_ms,
            most_ms=policy.max_backoff_ms,
            calm_ms=policy.calm_ms,
        )
        self._unproven = 0
        self._lock = threading.Lock()
        self._job_runs = False
        self._ever_registered = proven
        self._registered_now = False
        self._out_of_reach_since_ms: int | None = None
        self._told: ThreadExit | None = None
        self._stop_asked = threading.Event()
        self._close = Close()
        self._cancel_because: str | None = None
        #: Why it closes, to go on elsewhere; None if it stays. And the slot that is kept for it.
        self._moves_because: str | None = None
        self._claim: SlotClaim | None = None
        self._end_by: Deadline | None = None
        self._verdict: SparkError | None = None
        self._ended = threading.Event()
        #: It has registered, or never will.
        self._started = threading.Event()
        self._failure: SparkError | None = None
        #: Whether nothing is run any more, so that another thread may take the name.
        self.is_over = False
        #: How it ended; None while it has not, or when it failed.
        self.exit: ThreadExit | None = None
        #: Who registered last.
        self.last_hello: Hello | None = None

    # ---- the thread's own Python thread

    def run(self) -> None:
        """Keep the stream thread running until it exits or fails."""
        try:
            event = self._run_until_over()
        except Exception as error:
            # A defect of ours, but the owner must not wait for ever for a thread that is gone.
            logger.exception("Hosting %s failed", self.name)
            told = f"Hosting stream thread {self.name} failed: {text_of(error)}"
            event = self._failed(SparkError(told))
        if isinstance(event.data, ThreadExit):
            self.exit = event.data
        if isinstance(event.data, SparkError):
            self._failure = event.data
        try:
            self._release_claim()
            self._server.forget(self.name, "its job is over")
        finally:
            # Whatever has failed: who waits for the thread must not wait for ever.
            self.is_over = True
            self._started.set()
            self._emit(event)
            self._ended.set()

    def _run_until_over(self) -> ThreadEvent:
        self._stop_asked.wait(self._pause_ms / 1000)
        while True:
            if self._stop_asked.is_set():
                return ThreadEvent(self.name, "exited", ThreadExit("closed"))
            over = self._run_once()
            if isinstance(over, ThreadEvent):
                return over
            if not self._jobs.alive:
                # A machine that stops tells all processes, and the driver perhaps last.
                orderly = self._told is not None or not self._registered_now
                if orderly and self._stop_asked.wait(_TOLD_LAST_S):
                    return self._as_asked(self._told or ThreadExit("closed"))
                return self._failed(
                    SparkError(
                        f"Stream thread {self.name} cannot go on: the Spark session was stopped "
                        f"or its JVM ended. {over}"
                    )
                )
            if self._is_hopeless():
                return self._failed(
                    SparkError(
                        f"Spark cannot run stream thread {self.name}: its job failed "
                        f"{self._unproven} times before the thread had registered with the driver, "
                        f"the last time: {over} The executors' logs may say why."
                    )
                )
            pause_ms = self._backoff.next_pause_ms()
            self._emit(ThreadEvent(self.name, "restarting", over))
            logger.info("%s is started again in %d ms", short_name(self.name), pause_ms)
            self._stop_asked.wait(pause_ms / 1000)
            if self.placement is not None and self._moves_because is None:
                self.placement.await_host(self._stop_asked)

    def _run_once(self) -> ThreadEvent | str:
        """Run one job to its end: the last event of the thread, or why it has to run again."""
        with self._lock:
            submission = self._submission = self._next_submission()
            self._registered_now = False
            self._told = None
            self._cancel_because = None
            self._moves_because = None
            self._end_by = None
            self._out_of_reach_since_ms = self._clock.monotonic_ms()
            self._job_runs = True
        self._server.expect(self.name, submission, self._code)
        try:
            exit_ = self._jobs.run(
                self._plan_of(submission),
                self._versions,
                tag=self._tag,
                description=self.name,
                near=None if self.placement is None else self.placement.host,
            )
        except EnvironmentMismatchError as error:
            return self._failed(error)
        except SparkError as error:
            told = self._told_exit()
            if told is None:
                return self._after_broken_job(error)
            exit_ = told
        finally:
            with self._lock:
                self._job_runs = False
            self._server.forget(self.name, f"submission {submission} is over")
        if isinstance(exit_.error, EnvironmentMismatchError):
            return self._failed(exit_.error)
        if exit_.kind == "lost":
            if self._verdict is not None:
                return self._failed(self._verdict)
            if self._stop_asked.is_set():
                return self._as_asked(exit_)
            return f"the thread stopped: {exit_.reason}."
        if exit_.kind == "closed" and self._moves_because and not self._stop_asked.is_set():
            return self._moves_because
        return ThreadEvent(self.name, "exited", exit_)

    def _told_exit(self) -> ThreadExit | None:
        """How the thread has ended as far as it said so itself: its job has no result."""
        # One whose JVM has ended is closing just now, and still has its connection.
        if not self._jobs.alive:
            deadline = time.monotonic() + _LAST_WORDS_S
            while self._told is None and self._is_heard and time.monotonic() < deadline:
                time.sleep(_LISTEN_S)
        return self._told

    @property
    def _is_heard(self) -> bool:
        return self._registered_now and self._server.connected(self.name)

    def _as_asked(self, exit_: ThreadExit) -> ThreadEvent:
        as_asked = replace(exit_, kind="closed" if exit_.error is None else "error")
        return ThreadEvent(self.name, "exited", as_asked)

    def _after_broken_job(self, error: SparkError) -> ThreadEvent | str:
        if self._verdict is not None:
            return self._failed(self._verdict)
        because = self._cancel_because
        if self._stop_asked.is_set():
            if because is None or self._registered_now:
                return ThreadEvent(
                    self.name, "exited", ThreadExit("killed", reason=because or str(error))
                )
            return ThreadEvent(self.name, "exited", ThreadExit("closed"))
        return f"{because or error.message}."

    def _is_hopeless(self) -> bool:
        """Whether one more job of a thread that Spark has never run has failed, and enough did."""
        self._unproven = 0 if self._ever_registered else self._unproven + 1
        return self._unproven > 0 and self._unproven >= self._policy.max_unproven

    def _failed(self, error: SparkError) -> ThreadEvent:
        return ThreadEvent(self.name, "failed", error)

    # ---- from anywhere

    def on_registered(self, hello: Hello) -> None:
        """An attempt has registered with the control server."""
        with self._lock:
            again = self._registered_now
            self._registered_now = True
            self._ever_registered = True
            self._end_by = None
            self._out_of_reach_since_ms = None
            self._moves_because = None
            self.last_hello = hello
            # Before it can be asked to move once more, with a claim for that.
            claim, self._claim = self._claim, None
        if claim is not None:
            claim.release()
        # Before its events, which wait where many do: the owner may wait for the start meanwhile.
        self._started.set()
        if again:
            reason = "its process ended and Spark started the task again."
            self._emit(ThreadEvent(self.name, "restarting", reason))
        self._emit(ThreadEvent(self.name, "registered", hello))
        if self._stop_asked.is_set():
            self._send_close()

    def on_told(self, hello: Hello, exit_: ThreadExit) -> None:
        """The thread has ended, as it says itself."""
        with self._lock:
            if hello.epoch.submission == self._submission:
                self._told = exit_

    def ask_to_close(self, command: Close) -> None:
        """Send the thread this command, and do not start it again. Does nothing the second time."""
        if self._stop_asked.is_set():
            return
        self._close = command
        self._stop_asked.set()
        self._server.admit_no_more(self.name, "the thread is to close")
        self._send_close()

    @property
    def running_tag(self) -> str | None:
        """The tag of its job, if it runs and is to stay there."""
        with self._lock:
            stays = self._moves_because is None and not self._stop_asked.is_set()
            return self._tag if stays and self._job_runs and self._registered_now else None

    def move(self, because: str, claim: SlotClaim) -> None:
        """Let it commit, leave the group, and go on wherever Spark has a slot for it.

        Args:
            because: why, as a sentence.
            claim: the slot, which is kept for it until it runs there.
        """
        with self._lock:
            if self._stop_asked.is_set() or not self._registered_now or self._moves_because:
                claim.release()
                return
            self._moves_because, self._claim = because, claim
        logger.info("%s moves: %s", short_name(self.name), because)
        self._send_close()

    def cancel(self) -> None:
        """Cancel the job: the thread is killed if it runs."""
        self.ask_to_close(self._close)
        self._cancel(_KILLED)

    def expect_end(self, within_ms: int) -> None:
        """The thread says that it is ending by itself: kill it if it has not by then."""
        with self._lock:
            if self._job_runs:
                self._end_by = Deadline(self._clock, within_ms)

    def wait_started(self) -> SparkError | None:
        """Wait until it has registered once, or has ended; then why Spark cannot run it, if so."""
        self._started.wait()
        return None if self._ever_registered else self._failure

    def wait_ended(self, timeout_s: float | None) -> bool:
        """Wait until the thread has exited or failed and its last event is out."""
        return self._ended.wait(timeout_s)

    @property
    def was_killed(self) -> bool:
        """Whether it did not end by itself, or not yet."""
        return not self.ended or (self.exit is not None and self.exit.kind == "killed")

    @property
    def proven(self) -> bool:
        """Whether Spark has run it, or one of its name before it."""
        return self._ever_registered

    @property
    def was_lost(self) -> bool:
        """Whether Spark could not run it to its end: it did not commit what it had done."""
        return self.ended and self.exit is None and self._ever_registered

    @property
    def ended(self) -> bool:
        """Whether the thread has exited or failed."""
        return self._ended.is_set()

    def check(self) -> None:
        """Look after a thread that is out of reach, and after one that has to be cancelled."""
        with self._lock:
            if not self._job_runs:
                return
            if self._server.connected(self.name):
                self._out_of_reach_since_ms = None
            elif self._out_of_reach_since_ms is None:
                self._out_of_reach_since_ms = self._clock.monotonic_ms()
            since_ms = self._out_of_reach_since_ms
            registered = self._registered_now
            late = self._end_by is not None and self._end_by.passed
        if registered and self.placement is not None:
            self.placement.look(self._tag)
        if self._cancel_because is not None:
            # Again, because a job that was only about to be submitted is not found by its tag.
            self._jobs.cancel(self._tag)
        elif late:
            logger.warning("%s has failed and does not close in time: it is killed", self.name)
            self.cancel()
        elif since_ms is not None:
            self._check_out_of_reach(self._clock.monotonic_ms() - since_ms, registered)

    def _check_out_of_reach(self, waited_ms: int, registered: bool) -> None:
        if self._stop_asked.is_set() and not registered and not self._has_slot():
            self._cancel("it never ran")
        elif registered and waited_ms >= self._patience.reconnect_ms:
            self._cancel(f"the thread did not connect again for {waited_ms} ms")
        elif not registered and not self._may_register_yet(waited_ms):
            if self._ever_registered:
                self._cancel(f"the thread did not register again for {waited_ms} ms")
            else:
                self._verdict = self._never_registered(waited_ms)
                self._cancel("the thread never registered")

    def _may_register_yet(self, waited_ms: int) -> bool:
        patience = self._patience
        if waited_ms < patience.register_ms:
            return True
        return waited_ms < patience.start_ms and self._has_slot()

    def _never_registered(self, waited_ms: int) -> SparkError:
        seconds = f"{waited_ms / 1000:.0f} s"
        if self._has_slot():
            host, port = self._server.address
            if host.startswith("127."):
                return SparkError(
                    f"Stream thread {self.name} has a task slot but has not registered within "
                    f"{seconds}: this machine is probably too busy to start its Python process in "
                    "that time. Start the application again when there is less to do."
                )
            return SparkError(
                f"Stream thread {self.name} has a task slot but has not registered within "
                f"{seconds}: its executor probably cannot reach the driver at {host}:{port}. "
                "Check spark.driver.host and firewalls; the executor's log says more."
            )
        slots, needed = self._slots(), self._needed()
        return NotEnoughSlotsError(
            f"Stream thread {self.name} has not got a task slot within {seconds}: the Spark "
            f"session has {slots} slots, {needed} are needed for the stream threads, and other "
            "jobs may hold some. Give the session more cores (for example local[N] with a larger "
            "N, or more executors), or run fewer stream threads.",
            slots=slots,
            needed=needed,
        )

    def _has_slot(self) -> bool:
        return self._jobs.running_tasks(self._tag) > 0

    def _cancel(self, because: str) -> None:
        self._cancel_because = because
        self._jobs.cancel(self._tag)

    def _release_claim(self) -> None:
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.release()

    def _send_close(self) -> None:
        try:
            self._server.send(self.name, self._close)
        except ThreadUnavailableError:
            # Not registered: it is turned away when it comes, or cancelled if it has no slot.
            logger.debug("%s is not registered, so it was not sent the close command", self.name)

    @property
    def _tag(self) -> str:
        return f"{self.name}-{self._unique}-{self._submission}"
