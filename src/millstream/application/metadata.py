"""What an application tells about its threads and tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.runtime.stall import Stall
from millstream.runtime.states import OwnedTask


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
    """A stream thread of this instance: its state, the tasks it owns, and where it runs.

    `host` and `pid` are of the Spark Python worker that it is, None while it has none. `stall`
    tells where it hangs if it has made no progress for `max.poll.interval.ms`. `client` is the
    process id of the client that it is of: the same for the threads that run on one host, which
    share a folder of state, and another one for each host.
    `uncommitted_ms` is for how long the thread has processed records without a commit, None unless
    that is longer than the commit interval and twice `max.poll.interval.ms` (under exactly-once
    `transaction.timeout.ms`), of which a minute counts at most.

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
    """The active or the standby tasks of a thread, of all that it owns by id."""
    return tuple(
        TaskMetadata(task_id, task.state)
        for task_id, task in sorted(owned.items())
        if task.standby is standby
    )
