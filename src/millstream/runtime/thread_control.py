"""The messages between a stream thread and its driver.

They are independent of the transport.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from millstream.assignment.wire_format import HostPartitions
from millstream.errors import StreamsError
from millstream.metrics.metric_frames import MetricsFrame
from millstream.record import TaskId, TopicPartition
from millstream.runtime.states.thread_states import TaskState, ThreadState


@dataclass(frozen=True)
class Stall:
    """The location of a stalled stream thread.

    Args:
        silent_ms: milliseconds without progress.
        task_id: the current task, for example `0_1`; None between tasks.
        node: the current processor node; None outside of nodes.
        topic: the topic of the current record; None if there is none, for example in a punctuator.
        partition: the partition of that record.
        offset: the offset of that record.
        stack: the Python stack as lines of text, the innermost call last.

    Example:
        >>> streams = KafkaStreams(topology, config)
        >>> streams.start()
        >>> for thread in streams.metadata_for_local_threads():
        ...     if thread.stall is not None:
        ...         print(thread.thread_name, "hangs in", thread.stall.place)
    """

    silent_ms: int
    task_id: str | None = None
    node: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    stack: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The location in words, for example `task 0_1, node my-map, in-1 offset 42`."""
        parts = []
        if self.task_id is not None:
            parts.append(f"task {self.task_id}")
        if self.node is not None:
            parts.append(f"node {self.node}")
        if self.topic is not None:
            where = f"{self.topic}-{self.partition}"
            parts.append(where if self.offset is None else f"{where} offset {self.offset}")
        return ", ".join(parts) or "no task"

    def told_of(self, thread: str) -> str:
        """Return the log message, including the stack.

        Example:
            >>> print(Stall(2_000, "0_1", stack=("line 7",)).told_of("StreamThread-1"))
            StreamThread-1 has made no progress for 2 s: it hangs in task 0_1. Its tasks move ...
              line 7
        """
        stack = "\n  ".join(self.stack)
        return (
            f"{thread} has made no progress for {self.silent_ms // 1_000} s: it hangs in "
            f"{self.place}. Its tasks move to other threads until it continues. Its stack, "
            f"innermost call last:\n  {stack}"
        )


R = TypeVar("R")


# --- from the driver to the thread ----------------------------------------------------------------


class Command:
    """A message from the driver to a thread."""

    __slots__ = ()


class ThreadRequest(Command, Generic[R]):
    """A command with a reply of type `R`."""

    __slots__ = ()


@dataclass(frozen=True)
class Close(Command):
    """Commit and close."""

    #: Whether to leave the group. Static members stay in the group, unless `for_good` is set.
    leave_group: bool = True
    #: The timeout of the final commit; None for the usual timeout.
    commit_timeout_ms: int | None = None
    #: Whether no thread replaces this one, so that a static member leaves, too.
    for_good: bool = False


@dataclass(frozen=True)
class Pause(Command):
    """Stop processing until `Resume`. Finished work is committed."""


@dataclass(frozen=True)
class Resume(Command):
    """Resume processing."""


class MemoryShare(NamedTuple):
    """The part of the threads' shared memory that the stores of one thread may use."""

    cache_max_bytes: int
    uncommitted_max_bytes: int  # -1 for no limit


@dataclass(frozen=True)
class ResizeMemory(Command):
    """Change the stores' memory limits after a change of the thread count (KIP-663)."""

    share: MemoryShare


@dataclass(frozen=True)
class RequestShutdown(Command):
    """Request that all instances of the application shut down, and stop processing."""

    why: str


@dataclass(frozen=True)
class ChangeProperties(Command):
    """Change properties of a subscription.

    `given` contains those that were set, by name.
    """

    given: Mapping[str, Any]


@dataclass(frozen=True)
class ReceivedCommand:
    """A received command, which the thread may process much later."""

    command: Command
    #: The number for `Control.reply`; None for commands without a reply.
    number: int | None = None
    #: The time of arrival on the system's monotonic clock; None if unknown.
    arrived_ms: int | None = field(default=None, compare=False)


# --- from the thread to the driver ----------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """A message from a thread to its driver that is not a reply."""


@dataclass(frozen=True)
class ClientJoined(Report):
    """The client process of a thread: the threads of one driver on one host."""

    process_id: str
    #: The state directory of the process; None without state on disk.
    folder: str | None


@dataclass(frozen=True)
class StateChanged(Report):
    """A thread's state has changed."""

    state: ThreadState
    why: str


@dataclass(frozen=True)
class TasksChanged(Report):
    """The tasks that a thread owns, their states, and which of them are standbys."""

    tasks: Mapping[TaskId, TaskState]
    standby: frozenset[TaskId] = frozenset()


@dataclass(frozen=True)
class HostsChanged(Report):
    """The partitions of each instance, as assigned by the group's leader."""

    active: HostPartitions
    standby: HostPartitions


@dataclass(frozen=True)
class ThreadFailed(Report):
    """The error that ends a thread.

    Reported before closing, which may take a long time.
    """

    error: BaseException


@dataclass(frozen=True)
class LoopStalled(Report):
    """The loop has stalled for `max.poll.interval.ms`, or continues after a stall."""

    #: The location of the stall; None once the loop continues.
    stall: Stall | None


@dataclass(frozen=True)
class CommitsOverdue(Report):
    """A commit is overdue, or has succeeded after it was overdue."""

    #: How long records have been processed without a commit; None after the next commit.
    uncommitted_ms: int | None


@dataclass(frozen=True)
class ThreadMetrics(Report):
    """The metric changes since the last report.

    At intervals, all metrics are reported with their names.
    """

    frame: MetricsFrame


@dataclass(frozen=True)
class GetMetrics(ThreadRequest[ThreadMetrics]):
    """Request all metrics of a thread, with their names."""


class RestoreStep(enum.Enum):
    """A step in the restoration of a store from its changelog."""

    START = "start"
    BATCH = "batch"
    END = "end"
    #: The task is released or becomes a standby before the end.
    SUSPENDED = "suspended"
    STANDBY_START = "standby start"
    STANDBY_BATCH = "standby batch"
    #: The standby is released.
    STANDBY_MIGRATED = "standby migrated"
    #: The standby becomes active.
    STANDBY_PROMOTED = "standby promoted"

    @property
    def is_standby(self) -> bool:
        return self in _STANDBY_STEPS


_STANDBY_STEPS = frozenset(
    {
        RestoreStep.STANDBY_START,
        RestoreStep.STANDBY_BATCH,
        RestoreStep.STANDBY_MIGRATED,
        RestoreStep.STANDBY_PROMOTED,
    }
)


@dataclass(frozen=True)
class RestoreEvent(Report):
    """An event for restore listeners or standby update listeners."""

    step: RestoreStep
    topic_partition: TopicPartition
    store: str
    #: Depending on the step: the start offset (0 for an empty store), the last offset of the batch,
    #: or the end offset.
    offset: int
    #: The offset at which the restoration ends.
    end_offset: int
    #: The number of records restored: by the batch or, at the end, in total.
    records: int
    task_id: TaskId


# --- the connection -------------------------------------------------------------------------------


class Control(Protocol):
    """The thread's end of the control connection."""

    #: Called when a command arrives or the driver is lost, on any thread or in a signal handler.
    on_event: Callable[[], None]

    @property
    def lost(self) -> bool:
        """Whether the driver has been unreachable for longer than the grace period."""

    @property
    def lost_reason(self) -> str | None:
        """Why the driver is lost (failed connection attempts or a rejection), or None."""

    def report(self, report: Report) -> None:
        """Send a report to the driver without waiting."""

    def commands(self) -> Sequence[ReceivedCommand]:
        """Return the commands that arrived since the last call."""

    def reply(self, received: ReceivedCommand, answer: Any) -> None:
        """Reply to a request; an answer that is an exception is raised by the requester."""

    def process_io(self) -> None:
        """Receive commands and send replies on the calling thread, without waiting.

        Background threads do the same, but a busy thread that calls this method often avoids the
        cost of switching to those threads.
        """

    def reject_requests(self, error: StreamsError) -> None:
        """Reply to all pending and future requests with an error.

        Calls to `commands` are no longer necessary.
        """


@dataclass(frozen=True)
class ThreadOutcome:
    """The result of a stream thread."""

    #: The error that ended the thread; None if it closed on request.
    error: StreamsError | None = None
    history: list[str] = field(default_factory=list)
    close_error: StreamsError | None = None
    #: Whether everything in flight finished before the thread closed.
    has_drained: bool = True
