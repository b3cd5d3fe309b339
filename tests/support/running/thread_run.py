"""Any topology in a stream thread on a real broker, without Spark and in the test's own process."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from millstream import StreamsConfig, StreamsError, Topology
from millstream.record import TaskId
from millstream.runtime.build_thread import build_thread
from millstream.runtime.control import (
    Asked,
    Close,
    Report,
    StateChanged,
    TasksChanged,
    ThreadFailed,
    ThreadOutcome,
)
from millstream.runtime.host import Host
from millstream.runtime.ownership.restore_reports import RestoreAudience
from millstream.runtime.states import TaskState, ThreadState
from millstream.runtime.thread_identity import ThreadIdentity
from support.waiting import wait_for

_JOIN_S = 30
_WAIT_S = 30


class ThreadRun:
    """One stream thread of an application, from its start to its end; closed with the context,
    which fails if the thread has failed and nobody waited for that.

    Args:
        topology: what it computes.
        bootstrap: the broker.
        state_dir: where its state is.
        application_id: names the group.
        driver: the id of its driver; by default one that goes with the directory.
        host: where it believes to run; by default where it does.
        settings: further settings of the application.
    """

    def __init__(
        self,
        topology: Topology,
        bootstrap: str,
        state_dir: Path,
        application_id: str,
        *,
        driver: uuid.UUID | None = None,
        host: Host | None = None,
        **settings: Any,
    ) -> None:
        config = StreamsConfig(
            application_id=application_id,
            bootstrap_servers=bootstrap,
            **{"state_dir": str(state_dir), "commit_interval_ms": 100, **settings},
        )
        self.state = ThreadState.CREATED
        self.tasks: dict[TaskId, TaskState] = {}
        #: What it failed with, told as soon as that happens.
        self.failure: BaseException | None = None
        self.outcome: ThreadOutcome | None = None
        self._may_fail = False
        self.on_news: Callable[[], None] = lambda: None
        self.lost = False
        self.lost_reason: str | None = None
        self._told_to_close = threading.Event()
        self._closing = False
        driver = driver or uuid.uuid5(uuid.NAMESPACE_URL, str(state_dir))
        identity = ThreadIdentity(f"{application_id}-StreamThread-1", 1, driver)
        self._thread = build_thread(topology, config, identity, self, RestoreAudience(), host=host)
        self._runner = threading.Thread(target=self._run, name=identity.name, daemon=True)

    def __enter__(self) -> Self:
        self._runner.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if self.failure is not None and not self._may_fail:
            raise AssertionError(f"the thread failed: {self.failure}") from self.failure
        if kind is None:
            assert self.outcome is not None, "the thread hangs"
            assert self.outcome.close_error is None, self.outcome

    def close(self) -> None:
        """Have it close, and wait until it has."""
        self._told_to_close.set()
        self.on_news()
        self._runner.join(_JOIN_S)

    def wait_until_running(self, tasks: int | None = None) -> None:
        """Wait until the thread runs, with so many running tasks if that is said.

        Raises:
            BaseException: it has failed.
        """

        def runs() -> bool:
            if self.failure is not None:
                raise self.failure
            running = [s for s in self.tasks.values() if s is TaskState.RUNNING]
            return self.state is ThreadState.RUNNING and tasks in (None, len(running))

        wait_for(runs, _WAIT_S, f"the thread runs {tasks} tasks")

    @property
    def in_flight(self) -> int:
        """How many records its tasks have taken that are worked on beside the loop."""
        return sum(task.in_flight for task in self._thread._tasks.running)

    def wait_for_failure(self) -> StreamsError:
        """What the thread ends with by itself."""
        self._may_fail = True
        wait_for(lambda: self.failure is not None, _WAIT_S, "the thread fails")
        assert isinstance(self.failure, StreamsError), self.failure
        return self.failure

    # What the thread sees of its driver.

    def report(self, report: Report) -> None:
        match report:
            case StateChanged(state, _):
                self.state = state
            case TasksChanged(tasks):
                self.tasks = dict(tasks)
            case ThreadFailed(error):
                self.failure = error

    def attend(self) -> None:
        """What is said here needs nobody to carry it."""

    def commands(self) -> Sequence[Asked]:
        if self._closing or not self._told_to_close.is_set():
            return ()
        self._closing = True
        return (Asked(Close()),)

    def reply(self, asked: Asked, answer: Any) -> None:
        """Nothing is asked."""

    def refuse_questions(self, error: StreamsError) -> None:
        """Nothing is asked."""

    def _run(self) -> None:
        self.outcome = self._thread.run()
