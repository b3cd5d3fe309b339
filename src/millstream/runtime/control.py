"""What a stream thread and its driver say to each other, whatever carries it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from millstream.assignment.wire.assignment_info import HostPartitions
from millstream.errors import StreamsError
from millstream.metrics.frames import MetricsFrame
from millstream.record import TaskId, TopicPartition
from millstream.runtime.stall import Stall
from millstream.runtime.states import TaskState, ThreadState

R = TypeVar("R")


# --- from the driver to the thread ----------------------------------------------------------------


class Command:
    """Something that the driver asks of a thread."""

    __slots__ = ()


class Question(Command, Generic[R]):
    """A command that is answered, with an `R`."""

    __slots__ = ()


@dataclass(frozen=True)
class Close(Command):
    """Commit, and end.

    Args:
        leave_group: whether the group is to know at once; static members do not leave.
        commit_timeout_ms: how long the last commit may take; None for as long as any other.
        for_good: whether no thread takes its place, so that a static member leaves, too.
    """

    leave_group: bool = True
    commit_timeout_ms: int | None = None
    for_good: bool = False


@dataclass(frozen=True)
class Pause(Command):
    """Process nothing more until told to go on; what was processed is committed."""


@dataclass(frozen=True)
class Resume(Command):
    """Process again."""


class MemoryShare(NamedTuple):
    """What the stores of one thread may use of the memory that all threads share.

    Attributes:
        cache_max_bytes: bytes of record caches.
        uncommitted_max_bytes: bytes of writes that may wait for a commit; -1 for any number.
    """

    cache_max_bytes: int
    uncommitted_max_bytes: int


@dataclass(frozen=True)
class ResizeMemory(Command):
    """Change what the stores may use: there are more or fewer threads to share with (KIP-663)."""

    share: MemoryShare


@dataclass(frozen=True)
class AskForShutdown(Command):
    """Tell the group that all instances of the application are to shut down; process nothing more.

    Args:
        why: for the logs of the thread and of the broker.
    """

    why: str


@dataclass(frozen=True)
class ChangeProperties(Command):
    """Other properties of a subscription hold from now on.

    Args:
        given: those that are not left at their defaults, by name.
    """

    given: Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """A command as a thread gets it.

    Args:
        command: what is asked.
        number: of the question that it is, for `Control.reply`; None for other commands.
        arrived_ms: when it came, on the system's monotonic clock, in milliseconds; None if that was
            not noted. The thread may look at it much later.
    """

    command: Command
    number: int | None = None
    arrived_ms: int | None = field(default=None, compare=False)


# --- from the thread to the driver ----------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """Something that a thread tells its driver by itself."""


@dataclass(frozen=True)
class ClientJoined(Report):
    """The thread knows which client of the group's leader it is of: the threads of its driver that
    run on its host.

    Args:
        process_id: by which the leader knows the client.
        folder: where the client keeps its state on that host; None if it keeps nothing on disk.
    """

    process_id: str
    folder: str | None


@dataclass(frozen=True)
class StateChanged(Report):
    """The thread has changed its state."""

    state: ThreadState
    why: str


@dataclass(frozen=True)
class TasksChanged(Report):
    """The tasks that the thread owns now, where they are, and which of them are to be copies."""

    tasks: Mapping[TaskId, TaskState]
    standby: frozenset[TaskId] = frozenset()


@dataclass(frozen=True)
class HostsChanged(Report):
    """The group's leader has told which instance has which partitions.

    Args:
        active: by instance, what its active tasks read.
        standby: the same of standby tasks.
    """

    active: HostPartitions
    standby: HostPartitions


@dataclass(frozen=True)
class ThreadFailed(Report):
    """The thread ends because of this error. Told at once: closing may take long."""

    error: BaseException


@dataclass(frozen=True)
class LoopStalled(Report):
    """The processing loop has not come round for `max.poll.interval.ms`; None: it does again."""

    stall: Stall | None


@dataclass(frozen=True)
class CommitsOverdue(Report):
    """Records have been processed for so many milliseconds without a commit; None: it commits."""

    uncommitted_ms: int | None


@dataclass(frozen=True)
class ThreadMetrics(Report):
    """What is counted and measured of a thread.

    Args:
        frame: what has changed since the last report; with the names of all now and then.
    """

    frame: MetricsFrame


@dataclass(frozen=True)
class AskMetrics(Question[ThreadMetrics]):
    """What is counted and measured of the thread? All of it, with names."""


class RestoreStep(enum.Enum):
    """What happened to a store that reads its changelog."""

    START = "start"
    BATCH = "batch"
    END = "end"
    #: The task is given up, or becomes a standby, before the end.
    SUSPENDED = "suspended"
    STANDBY_START = "standby start"
    STANDBY_BATCH = "standby batch"
    #: The standby is given up.
    STANDBY_MIGRATED = "standby migrated"
    #: The standby becomes active.
    STANDBY_PROMOTED = "standby promoted"

    @property
    def is_of_standby(self) -> bool:
        """Whether it is a standby that reads."""
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
    """Something that a restore listener or a standby's listener is told.

    Args:
        step: what happened.
        place: the changelog partition.
        store: the store's name.
        offset: where it starts, 0 for an empty store; the last offset of a batch; the end.
        end_offset: where the restoration ends.
        records: restored in the batch, or in total at the end.
        task_id: the task.
    """

    step: RestoreStep
    place: TopicPartition
    store: str
    offset: int
    end_offset: int
    records: int
    task_id: TaskId


# --- the connection -------------------------------------------------------------------------------


class Control(Protocol):
    """The thread's end of the connection to its driver."""

    #: Called when a command has come or the driver is lost; on any thread, or in a signal handler.
    on_news: Callable[[], None]

    @property
    def lost(self) -> bool:
        """Whether the driver has been unreachable for longer than the grace period."""
        ...

    @property
    def lost_reason(self) -> str | None:
        """What was tried and for how long, or why the driver does not want it; None if not lost."""
        ...

    def report(self, report: Report) -> None:
        """Tell the driver something, without waiting for it."""
        ...

    def commands(self) -> Sequence[Asked]:
        """What the driver has asked since the last call."""
        ...

    def reply(self, asked: Asked, answer: Any) -> None:
        """Answer a question; an exception is raised where it was asked."""
        ...

    def attend(self) -> None:
        """Let commands come and replies go, on the calling thread and without waiting.

        They do so anyhow. But a thread that computes, and is called here often, saves what it costs
        to let other threads do it.
        """
        ...

    def refuse_questions(self, error: StreamsError) -> None:
        """Answer all questions with an error from now on, those that wait included, without anybody
        calling `commands`."""
        ...


@dataclass(frozen=True)
class ThreadOutcome:
    """How a stream thread ended.

    Args:
        error: what made it stop; None if it was asked to.
        story: its last changes of state, oldest first.
        close_error: the first thing that went wrong while it closed.
        has_drained: whether all that its tasks had in flight when it closed came to its end.
    """

    error: StreamsError | None = None
    story: list[str] = field(default_factory=list)
    close_error: StreamsError | None = None
    has_drained: bool = True
