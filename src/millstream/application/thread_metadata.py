"""The public metadata of threads and tasks, and the locations of threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from millstream.runtime.states.thread_states import OwnedTask
from millstream.runtime.thread_control import ClientJoined, Stall
from millstream.spark.connection.messages import Hello


@dataclass(frozen=True)
class TaskMetadata:
    """A task of a thread: its id, for example `0_1`, and its state.

    Example:
        >>> TaskMetadata(task_id="0_1", state="RUNNING").state
        'RUNNING'
    """

    task_id: str
    state: str


@dataclass(frozen=True)
class ThreadMetadata:
    """A stream thread of this instance: its state, its tasks, and where it runs.

    Attributes:
        host: the host of the Spark Python worker that runs the thread; None while no worker does.
        pid: the process id of that worker, or None.
        stall: where the thread hangs, if it has made no progress for `max.poll.interval.ms`.
        client: the process id of the thread's Kafka Streams client. The threads on one host belong
            to one client and share a state directory.
        uncommitted_ms: how long the thread has processed records without a commit. None unless
            this exceeds `commit.interval.ms` plus a grace period. The grace period is twice
            `max.poll.interval.ms` (under exactly-once, twice `transaction.timeout.ms` if that is
            smaller), but at most one minute.

    Example:
        >>> tasks = (TaskMetadata("0_1", "RUNNING"), TaskMetadata("1_1", "RUNNING"))
        >>> thread = ThreadMetadata("shop-StreamThread-1", "RUNNING", active_tasks=tasks)
        >>> [task.task_id for task in thread.active_tasks]
        ['0_1', '1_1']
    """

    thread_name: str
    thread_state: str
    active_tasks: tuple[TaskMetadata, ...] = field(default=())
    standby_tasks: tuple[TaskMetadata, ...] = field(default=())
    host: str | None = None
    pid: int | None = None
    stall: Stall | None = None
    client: str | None = None
    uncommitted_ms: int | None = None


def tasks_of(owned: Mapping[str, OwnedTask], *, standby: bool) -> tuple[TaskMetadata, ...]:
    return tuple(
        TaskMetadata(task_id, task.state)
        for task_id, task in sorted(owned.items())
        if task.standby is standby
    )


@dataclass(frozen=True)
class WorkerLocation:
    """The worker process of a stream thread.

    Args:
        client: the process id of the thread's Kafka Streams client; None until it is reported.
        folder: the state directory of that client; None if nothing is stored on disk.
    """

    host: str | None = None
    pid: int | None = None
    client: str | None = None
    folder: str | None = None


#: The location of a thread that is not running.
NO_LOCATION: Final = WorkerLocation()


class WorkerRegistry:
    """The locations of the running threads. Thread-safe."""

    def __init__(self) -> None:
        self._locations: dict[str, WorkerLocation] = {}

    def registered(self, hello: Hello) -> str:
        """Store the location of a thread that has registered, and return a description."""
        self._locations[hello.thread_name] = WorkerLocation(hello.host, hello.pid)
        return f"runs in process {hello.pid} on {hello.host}"

    def joined(self, thread: str, report: ClientJoined) -> str:
        worker = replace(self.location_of(thread), client=report.process_id, folder=report.folder)
        self._locations[thread] = worker
        state = (
            "without state on disk" if report.folder is None else f"with state in {report.folder}"
        )
        return f"belongs to client {report.process_id} on {worker.host}, {state}"

    def ended(self, thread: str) -> None:
        self._locations.pop(thread, None)

    def location_of(self, thread: str) -> WorkerLocation:
        """Return the location of a thread, or `NO_LOCATION` if it is not running."""
        return self._locations.get(thread, NO_LOCATION)
