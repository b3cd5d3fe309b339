"""How checks see what tasks do: the methods of tasks tell them, while a history runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from millstream.runtime.ownership.restoration import Restoration
from millstream.runtime.task.stream_task import StreamTask
from millstream.state.directories.own_file import OwnFile
from simulation.checks import Checks, ViolationError
from simulation.scheduler import Process, Scheduler


class OpenFiles:
    """The files that processes have open, so that none stays open when a process ends.

    Args:
        scheduler: the world.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._files: dict[Process, set[OwnFile]] = defaultdict(set)

    def opened(self, file: OwnFile) -> None:
        """The running process has opened a file."""
        if (process := self._scheduler.current.process) is not None:
            self._files[process].add(file)

    def of(self, process: Process) -> list[str]:
        """The files that a process has open."""
        return sorted(str(file.path) for file in self._files[process] if file.is_open)

    def close(self, process: Process) -> None:
        """Close what a process that was killed has left open, as its system does."""
        for file in self._files.pop(process, set()):
            if file.is_open:
                file.close()


@contextmanager
def watched(scheduler: Scheduler, checks: Checks, files: OpenFiles) -> Iterator[None]:
    """Let checks see tasks, and which files are open, until this is left."""
    open_file = OwnFile.open

    def watched_open(self: OwnFile) -> None:
        open_file(self)
        files.opened(self)

    methods = {**_task_methods(scheduler, checks), (OwnFile, "open"): watched_open}
    with _replaced(methods):
        yield


@contextmanager
def _replaced(methods: dict[tuple[type, str], Callable[..., Any]]) -> Iterator[None]:
    originals = {place: getattr(*place) for place in methods}
    for (owner, name), method in methods.items():
        setattr(owner, name, method)
    try:
        yield
    finally:
        for (owner, name), method in originals.items():
            setattr(owner, name, method)


def _task_methods(
    scheduler: Scheduler, checks: Checks
) -> dict[tuple[type, str], Callable[..., Any]]:
    open_stores, start = StreamTask.open_stores, StreamTask.start
    step, commit_begun = StreamTask.step, StreamTask.commit_begun
    post_commit = StreamTask.post_commit
    suspend, close = StreamTask.suspend, StreamTask.close
    add = Restoration.add

    def living() -> Process | None:
        found = scheduler.current.process
        return found if found is not None and found.alive else None

    def watched_open(self: StreamTask, **named: Any) -> None:
        open_stores(self, **named)
        if (where := living()) is not None:
            checks.opened(where, self)

    def watched_start(self: StreamTask, *arguments: Any) -> None:
        start(self, *arguments)
        if (where := living()) is not None:
            checks.begins(where, self)

    def watched_step(self: StreamTask, limit: int) -> int:
        where = living()
        if where is not None and where.slow_us:
            scheduler.step(where.slow_us)
        before = self.processed_total
        try:
            return step(self, limit)
        finally:
            if where is not None and where.alive:
                checks.processes(where, self, self.processed_total - before)

    def watched_commit_begun(self: StreamTask) -> None:
        if (where := living()) is not None:
            checks.begins_commit(where, self)
        commit_begun(self)

    def watched_post_commit(self: StreamTask, offsets: Any, acked: Any) -> None:
        where = living()
        if where is not None:
            checks.has_committed(where, self)
        post_commit(self, offsets, acked)

    def watched_add(self: Restoration, task_id: Any, changelogs: Any, **named: Any) -> None:
        where = living()
        if where is not None and not named.get("standby"):
            checks.restores(where, changelogs)
        add(self, task_id, changelogs, **named)

    def watched_suspend(self: StreamTask) -> None:
        if (where := living()) is not None:
            checks.stops(where, self, clean=True)
        suspend(self)

    def watched_close(self: StreamTask, *, clean: bool) -> None:
        if (where := living()) is not None:
            checks.closes(where, self, clean=clean)
        close(self, clean=clean)

    methods: dict[tuple[type, str], Callable[..., Any]] = {
        (Restoration, "add"): watched_add,
        (StreamTask, "open_stores"): watched_open,
        (StreamTask, "start"): watched_start,
        (StreamTask, "step"): watched_step,
        (StreamTask, "commit_begun"): watched_commit_begun,
        (StreamTask, "post_commit"): watched_post_commit,
        (StreamTask, "suspend"): watched_suspend,
        (StreamTask, "close"): watched_close,
    }
    return {place: _telling(scheduler, method) for place, method in methods.items()}


def _telling(scheduler: Scheduler, method: Callable[..., Any]) -> Callable[..., Any]:
    """What a check finds ends the history, whoever catches it on its way."""

    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except ViolationError as violation:
            scheduler.failed(violation)
            raise

    return call
