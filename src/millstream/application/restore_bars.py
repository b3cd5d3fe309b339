"""Long restorations as bars on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from millstream.record import TopicPartition
from millstream.runtime.control import RestoreEvent, RestoreStep

if TYPE_CHECKING:
    from rich.progress import Progress

#: Shorter restorations are over before a bar could be read.
_RECORDS_WORTH_A_BAR: Final = 200_000


class RestoreBars:
    """Draws a bar for each store that has much to restore, until it is there.

    Draws nothing where stderr is no terminal;
    the log tells the same.

    Args:
        file: where to draw; by default stderr.
    """

    def __init__(self, file: Any = None) -> None:
        self._file = file or sys.stderr
        self._progress: Progress | None = None
        self._bars: dict[TopicPartition, tuple[Any, int]] = {}

    @property
    def may_show(self) -> bool:
        """Whether there is a terminal to draw on."""
        return bool(self._file.isatty())

    def show(self, event: RestoreEvent) -> None:
        """Follow what a restore listener is told."""
        if event.step is RestoreStep.START:
            # A thread that died in the middle never told of an end.
            self._end(event.place)
            start = max(event.offset, 0)
            if event.end_offset - start >= _RECORDS_WORTH_A_BAR:
                self._begin(event, start)
        elif event.place in self._bars:
            bar, start = self._bars[event.place]
            assert self._progress is not None
            if event.step is RestoreStep.BATCH:
                self._progress.update(bar, completed=event.offset + 1 - start)
            elif event.step in (RestoreStep.END, RestoreStep.SUSPENDED):
                self._end(event.place)

    def close(self) -> None:
        """Take all bars away."""
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
        if self._progress is None:
            self._progress = self._started()
        if self._progress is not None:
            bar = self._progress.add_task(
                f"restoring {event.store} {event.place.partition}", total=event.end_offset - start
            )
            self._bars[event.place] = (bar, start)

    def _started(self) -> Progress | None:
        if not self.may_show:
            return None
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
