"""Reports the actions of tasks to the checks, by wrapping methods of tasks during a history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.task_management.restoration import StateRestorer
from millstream.state.directories.file_lock import NonInheritableFile
from simulation.checks import Checks, ViolationError
from simulation.scheduler import Process, Scheduler


class OpenFiles:
    """Tracks the open files of processes, so that none stays open when its process ends.

    Args:
        scheduler: the simulation's scheduler.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._files: dict[Process, set[NonInheritableFile]] = defaultdict(set)

    def opened(self, file: NonInheritableFile) -> None:
        """Note a file that the running process has opened."""
        if (process := self._scheduler.current.process) is not None:
            self._files[process].add(file)

    def of(self, process: Process) -> list[str]:
        """The paths of the open files of a process."""
        return sorted(str(file.path) for file in self._files[process] if file.is_open)

    def close(self, process: Process) -> None:
        """Close the open files of a killed process, as its operating system does."""
        for file in self._files.pop(process, set()):
            if file.is_open:
                file.close()


@contextmanager
def watched(scheduler: Scheduler, checks: Checks, files: OpenFiles) -> Iterator[None]:
    """Report the actions of tasks and opened files until the context ends."""
    open_file = NonInheritableFile.open

    def watched_open(self: NonInheritableFile) -> None:
        open_file(self)
        files.opened(self)

    methods = {**_task_methods(scheduler, checks), (NonInheritableFile, "open"): watched_open}
    with _replaced(methods):
        yield


@contextmanager
def _replaced(methods: dict[tuple[type, str], Callable[..., Any]]) -> Iterator[None]:
    originals = {attribute: getattr(*attribute) for attribute in methods}
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
    step, on_commit_started = StreamTask.step, StreamTask.on_commit_started
    post_commit = StreamTask.post_commit
    suspend, close = StreamTask.suspend, StreamTask.close
    add = StateRestorer.add

    def living() -> Process | None:
        found = scheduler.current.process
        return found if found is not None and found.alive else None

    def watched_open(self: StreamTask, **named: Any) -> None:
        open_stores(self, **named)
        if (process := living()) is not None:
            checks.task_opened(process, self)

    def watched_start(self: StreamTask, *arguments: Any) -> None:
        start(self, *arguments)
        if (process := living()) is not None:
            checks.task_started(process, self)

    def watched_step(self: StreamTask, limit: int) -> int:
        process = living()
        if process is not None and process.slow_us:
            scheduler.step(process.slow_us)
        before = self.processed_total
        try:
            return step(self, limit)
        finally:
            if process is not None and process.alive:
                checks.records_processed(process, self, self.processed_total - before)

    def watched_commit_begun(self: StreamTask) -> None:
        if (process := living()) is not None:
            checks.commit_started(process, self)
        on_commit_started(self)

    def watched_post_commit(self: StreamTask, offsets: Any, acked: Any) -> None:
        process = living()
        if process is not None:
            checks.commit_finished(process, self)
        post_commit(self, offsets, acked)

    def watched_add(self: StateRestorer, task_id: Any, changelogs: Any, **named: Any) -> None:
        process = living()
        if process is not None and not named.get("standby"):
            checks.restore_started(process, changelogs)
        add(self, task_id, changelogs, **named)

    def watched_suspend(self: StreamTask) -> None:
        if (process := living()) is not None:
            checks.task_stopped(process, self, clean=True)
        suspend(self)

    def watched_close(self: StreamTask, *, clean: bool) -> None:
        if (process := living()) is not None:
            checks.task_closed(process, self, clean=clean)
        close(self, clean=clean)

    methods: dict[tuple[type, str], Callable[..., Any]] = {
        (StateRestorer, "add"): watched_add,
        (StreamTask, "open_stores"): watched_open,
        (StreamTask, "start"): watched_start,
        (StreamTask, "step"): watched_step,
        (StreamTask, "on_commit_started"): watched_commit_begun,
        (StreamTask, "post_commit"): watched_post_commit,
        (StreamTask, "suspend"): watched_suspend,
        (StreamTask, "close"): watched_close,
    }
    return {
        attribute: _reporting_violations(scheduler, method) for attribute, method in methods.items()
    }


def _reporting_violations(scheduler: Scheduler, method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that a violation ends the history even if the engine catches it."""

    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except ViolationError as violation:
            scheduler.failed(violation)
            raise

    return call
