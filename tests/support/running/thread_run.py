"""Any topology in a stream thread on a real broker, without Spark and in the test's process."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from unittest.mock import patch

from confluent_kafka import KafkaException

from millstream import StreamsConfig, StreamsError, Topology
from millstream.record import TaskId
from millstream.runtime.build_thread import build_thread
from millstream.runtime.client_process import ThreadIdentity, WorkerHost
from millstream.runtime.states.thread_states import TaskState, ThreadState
from millstream.runtime.task.node_context import DroppedRecords
from millstream.runtime.task_management.restore_reports import RestoreReportOptions
from millstream.runtime.thread_control import (
    Close,
    Command,
    ReceivedCommand,
    Report,
    RestoreEvent,
    RestoreStep,
    StateChanged,
    TasksChanged,
    ThreadFailed,
    ThreadOutcome,
)
from support.broker.topics import BrokerTopics
from support.waiting import wait_for

_JOIN_S = 30
_WAIT_S = 30
_DONE_S = 60


class LocalControl:
    """A driver in the process of its thread.

    Attributes:
        failure: the error of the thread, set as soon as it fails.
    """

    lost = False
    lost_reason: str | None = None

    def __init__(self) -> None:
        self.state = ThreadState.CREATED
        self.tasks: dict[TaskId, TaskState] = {}
        self.failure: BaseException | None = None
        self.restored = 0
        self.on_event: Callable[[], None] = lambda: None
        self._commands: deque[Command] = deque()
        self._is_closing = False

    def send(self, command: Command) -> None:
        """Send a command to the thread."""
        self._commands.append(command)
        self.on_event()

    def close(self) -> None:
        """Send the command to close."""
        if not self._is_closing:
            self._is_closing = True
            self.send(Close())

    def report(self, report: Report) -> None:
        match report:
            case StateChanged(state, _):
                self.state = state
            case TasksChanged(tasks):
                self.tasks = dict(tasks)
            case ThreadFailed(error):
                self.failure = error
            case RestoreEvent(step=RestoreStep.END, records=records):
                self.restored += records

    def process_io(self) -> None:
        """Do nothing: there is no connection."""

    def commands(self) -> Sequence[ReceivedCommand]:
        return [ReceivedCommand(self._commands.popleft()) for _ in range(len(self._commands))]

    def reply(self, received: ReceivedCommand, answer: Any) -> None:
        """Do nothing: there are no requests."""

    def reject_requests(self, error: StreamsError) -> None:
        """Do nothing: there are no requests."""


class ThreadRun:
    """The only stream thread of an instance; the context closes it and fails if it has failed
    unexpectedly.

    Args:
        driver: the id of its driver; by default derived from the state directory.
        host: the host that it reports; by default the real one.
        may_fail: whether failures are expected.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        *,
        driver: uuid.UUID | None = None,
        host: WorkerHost | None = None,
        may_fail: bool = False,
    ) -> None:
        self.control = LocalControl()
        self.outcome: ThreadOutcome | None = None
        self._may_fail = may_fail
        driver = driver or uuid.uuid5(uuid.NAMESPACE_URL, str(config.state_dir))
        identity = ThreadIdentity(f"{config.application_id}-StreamThread-1", 1, driver)
        self.thread = build_thread(
            topology, config, identity, self.control, RestoreReportOptions(), host=host
        )
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
            assert self.outcome is not None, "the thread does not end"
            assert self._may_fail or self.outcome.close_error is None, self.outcome

    def _run(self) -> None:
        self.outcome = self.thread.run()

    @property
    def failure(self) -> BaseException | None:
        return self.control.failure

    @property
    def tasks(self) -> dict[TaskId, TaskState]:
        return self.control.tasks

    @property
    def has_ended(self) -> bool:
        return not self._runner.is_alive()

    def close(self) -> None:
        """Close the thread and wait until it has ended."""
        self.control.close()
        self._runner.join(_JOIN_S)

    def wait_ended(self) -> None:
        """Wait until the thread has ended by itself or by a command."""
        self._runner.join()

    def wait_until_running(self, tasks: int | None = None) -> None:
        """Wait until the thread is running, and optionally until it runs this many tasks.

        Raises:
            BaseException: it has failed.
        """

        def runs() -> bool:
            if self.failure is not None:
                raise self.failure
            running = [s for s in self.tasks.values() if s is TaskState.RUNNING]
            return self.control.state is ThreadState.RUNNING and tasks in (None, len(running))

        wait_for(runs, _WAIT_S, f"the thread runs {tasks} tasks")

    @property
    def in_flight(self) -> int:
        """The number of records in flight in its tasks."""
        return sum(task.in_flight for task in self.thread._tasks.running)

    def wait_for_failure(self) -> StreamsError:
        """Wait until the thread fails, and return its error."""
        self._may_fail = True
        wait_for(lambda: self.failure is not None, _WAIT_S, "the thread fails")
        assert isinstance(self.failure, StreamsError), self.failure
        return self.failure


def thread_config(bootstrap: str, state_dir: Path, name: str, **settings: Any) -> StreamsConfig:
    """The settings of an application that commits often."""
    return StreamsConfig(
        application_id=name,
        bootstrap_servers=bootstrap,
        **{"state_dir": str(state_dir), "commit_interval_ms": 100, **settings},
    )


class FinishedRun(NamedTuple):
    """A thread's outcome, and the number of records that its tasks counted as dropped."""

    outcome: ThreadOutcome
    dropped: int


def run_to_end(topology: Topology, config: StreamsConfig, inputs: Sequence[str]) -> FinishedRun:
    """Run a thread until everything in `inputs` is committed, or it has failed."""
    topics = BrokerTopics(config.bootstrap_servers)
    with counting_dropped() as dropped, ThreadRun(topology, config, may_fail=True) as run:
        wait_for(
            lambda: run.has_ended or is_done(topics, config.application_id, inputs),
            _DONE_S,
            "the input is committed",
        )
    assert run.outcome is not None
    return FinishedRun(run.outcome, sum(dropped))


def is_done(topics: BrokerTopics, group: str, inputs: Sequence[str]) -> bool:
    """Whether a group has committed all of its input; False while its coordinator is
    unavailable."""
    try:
        return topics.lag(group, inputs) == 0
    except KafkaException:
        # The first group of a cluster waits for the offsets topic.
        return False


@contextmanager
def counting_dropped() -> Iterator[list[int]]:
    """Count the dropped records of this process within the block."""
    counts: list[int] = []
    original = DroppedRecords.add

    def add(
        self: DroppedRecords, count: int, why: str, node: str, windows: int | None = None
    ) -> None:
        counts.append(count if windows is None else windows)
        original(self, count, why, node, windows)

    with patch.object(DroppedRecords, "add", add):
        yield counts
