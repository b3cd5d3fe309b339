"""Receivers of restore events: the user's listeners and progress bars."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from millstream.async_checks import reject_deferred_methods
from millstream.errors import StreamsError
from millstream.record import TopicPartition
from millstream.runtime.thread_control import RestoreEvent, RestoreStep

if TYPE_CHECKING:
    from rich.progress import Progress

#: Restorations of fewer records end before a progress bar is readable.
_MIN_RECORDS: Final = 200_000


class RestoreListenerAdapter:
    """Calls a restore listener; see `KafkaStreams.set_global_state_restore_listener`."""

    def __init__(self, listener: Any) -> None:
        reject_deferred_methods("set_global_state_restore_listener()", listener, "on_")
        self._listener = listener

    def __call__(self, event: RestoreEvent) -> None:
        listener = self._listener
        if event.step is RestoreStep.START:
            listener.on_restore_start(
                event.topic_partition, event.store, event.offset, event.end_offset
            )
        elif event.step is RestoreStep.BATCH:
            listener.on_batch_restored(
                event.topic_partition, event.store, event.offset, event.records
            )
        elif event.step is RestoreStep.END:
            listener.on_restore_end(event.topic_partition, event.store, event.records)
        elif hasattr(listener, "on_restore_suspended"):
            listener.on_restore_suspended(event.topic_partition, event.store, event.records)


class StandbyListenerAdapter:
    """Calls a standby listener; see `KafkaStreams.set_standby_update_listener`."""

    def __init__(self, listener: Any) -> None:
        reject_deferred_methods("set_standby_update_listener()", listener, "on_")
        self._listener = listener

    def __call__(self, event: RestoreEvent) -> None:
        listener, place, store = self._listener, event.topic_partition, event.store
        if event.step is RestoreStep.STANDBY_START:
            listener.on_update_start(place, store, event.offset)
        elif event.step is RestoreStep.STANDBY_BATCH:
            listener.on_batch_loaded(
                place, store, event.task_id, event.offset, event.records, event.end_offset
            )
        else:
            migrated = event.step is RestoreStep.STANDBY_MIGRATED
            reason = "MIGRATED" if migrated else "PROMOTED"
            listener.on_update_suspended(place, store, event.offset, event.end_offset, reason)


def notify(listener: Callable[[RestoreEvent], None], event: RestoreEvent) -> StreamsError | None:
    """Call a restore or standby listener, and return its error if it raised one."""
    try:
        listener(event)
    except Exception as error:
        kind = "standby" if event.step.is_standby else "restore"
        failure = StreamsError(
            f"The {kind} listener failed on '{event.step.value}' of store '{event.store}': "
            f"{type(error).__name__}: {error}. Correct the listener, or catch the error in it.",
            topic=event.topic_partition.topic,
            partition=event.topic_partition.partition,
        )
        failure.__cause__ = error
        return failure
    return None


class RestoreBars:
    """Draws a progress bar for each store with many records to restore.

    Draws nothing if stderr is not a terminal; the log contains the same information.
    """

    def __init__(self, file: Any = None) -> None:
        self._file = file or sys.stderr
        self._progress: Progress | None = None
        self._bars: dict[TopicPartition, tuple[Any, int]] = {}

    @property
    def may_show(self) -> bool:
        return bool(self._file.isatty())

    def show(self, event: RestoreEvent) -> None:
        if event.step is RestoreStep.START:
            # A thread that was killed while restoring has not reported the end.
            self._end(event.topic_partition)
            start = max(event.offset, 0)
            if event.end_offset - start >= _MIN_RECORDS:
                self._begin(event, start)
        elif event.topic_partition in self._bars:
            bar, start = self._bars[event.topic_partition]
            assert self._progress is not None
            if event.step is RestoreStep.BATCH:
                self._progress.update(bar, completed=event.offset + 1 - start)
            elif event.step in (RestoreStep.END, RestoreStep.SUSPENDED):
                self._end(event.topic_partition)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress = None
        self._bars = {}

    def _end(self, place: TopicPartition) -> None:
        if place not in self._bars:
            return
        bar, _ = self._bars.pop(place)
        assert self._progress is not None
        self._progress.remove_task(bar)
        if not self._bars:
            self.close()

    def _begin(self, event: RestoreEvent, start: int) -> None:
        if not self.may_show:
            return
        if self._progress is None:
            self._progress = self._start_progress()
        name, total = f"{event.store} {event.topic_partition.partition}", event.end_offset - start
        bar = self._progress.add_task(f"restoring {name}", total=total)
        self._bars[event.topic_partition] = (bar, start)

    def _start_progress(self) -> Progress:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(file=self._file),
            transient=True,
        )
        progress.start()
        return progress
