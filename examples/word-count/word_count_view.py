"""The progress of the demo: a live table in a terminal, otherwise lines."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

#: The period over which the speed is measured.
SPEED_OVER_S = 4.0
TABLE_EVERY_S = 0.25
LINE_EVERY_S = 2.0
BAR_WIDTH = 30
WORDS_IN_A_LINE = 5


@dataclass(frozen=True, slots=True)
class Task:
    """A task and the thread that runs it."""

    task_id: str
    thread: str


@dataclass(frozen=True, slots=True)
class Progress:
    """A snapshot of the progress."""

    elapsed_s: float
    state: str
    lines_sent: int
    lines: int
    counted: int
    expected: int
    distinct: int
    top: list[tuple[str, int]]
    tasks: list[Task] = field(default_factory=list)


class View(Protocol):
    """Shows the progress."""

    def is_due(self) -> bool:
        """Return whether an update is due."""
        raise NotImplementedError

    def show(self, progress: Progress) -> None:
        """Show the current progress."""


@contextmanager
def view() -> Generator[View]:
    """Yield a live table if the output is a terminal, otherwise lines."""
    if not sys.stdout.isatty():
        yield Lines()
        return
    with Live(auto_refresh=False) as live:
        yield LiveTable(live)


class Speed:
    """Words per second, over the last few seconds."""

    def __init__(self) -> None:
        # Bounded by the number of updates in SPEED_OVER_S.
        self._samples: deque[tuple[float, int]] = deque()

    def of(self, progress: Progress) -> float:
        samples = self._samples
        samples.append((progress.elapsed_s, progress.counted))
        while progress.elapsed_s - samples[0][0] > SPEED_OVER_S and len(samples) > 2:
            samples.popleft()
        seconds = progress.elapsed_s - samples[0][0]
        return (progress.counted - samples[0][1]) / seconds if seconds > 0 else 0.0


class Pace:
    """Limits the rate of updates."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._next = 0.0

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._every_s
        return True


class Lines:
    """A line every two seconds without control codes, for files, pipes and CI."""

    def __init__(self) -> None:
        self._pace = Pace(LINE_EVERY_S)
        self._speed = Speed()
        self._tasks: list[Task] = []

    def is_due(self) -> bool:
        return self._pace.is_due()

    def show(self, progress: Progress) -> None:
        if progress.tasks != self._tasks:
            self._tasks = progress.tasks
            for thread, ids in by_thread(progress.tasks).items():
                print(f"  {thread} runs {' '.join(ids)}")
        top = ", ".join(f"{word} {count:,}" for word, count in progress.top[:WORDS_IN_A_LINE])
        print(
            f"{progress.elapsed_s:5.1f} s  {progress.state}  "
            f"{progress.lines_sent:,} of {progress.lines:,} lines sent, "
            f"{progress.counted:,} words counted ({self._speed.of(progress):,.0f}/s)  {top}",
            flush=True,
        )


class LiveTable:
    """The most frequent words with bars, next to the state of the application."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._pace = Pace(TABLE_EVERY_S)
        self._speed = Speed()

    def is_due(self) -> bool:
        return self._pace.is_due()

    def show(self, progress: Progress) -> None:
        screen = Table.grid(padding=(0, 2))
        screen.add_row(self._words(progress), self._application(progress))
        self._live.update(screen, refresh=True)

    def _words(self, progress: Progress) -> Table:
        table = Table(title="word counts", title_style="bold", width=58)
        table.add_column("word", style="cyan", width=12, no_wrap=True)
        table.add_column("count", justify="right", style="bold", width=9)
        table.add_column("", width=BAR_WIDTH - 4)
        largest = progress.top[0][1] if progress.top else 1
        for word, count in progress.top:
            length = max(1, round((BAR_WIDTH - 4) * count / largest))
            table.add_row(word, f"{count:,}", Text("█" * length, style="green"))
        return table

    def _application(self, progress: Progress) -> Panel:
        facts = Table.grid(padding=(0, 1))
        facts.add_column(style="dim")
        facts.add_column(justify="right", style="bold")
        facts.add_row("state", progress.state)
        facts.add_row("time", f"{progress.elapsed_s:.0f} s")
        facts.add_row("lines sent", f"{progress.lines_sent:,}")
        facts.add_row("words counted", f"{progress.counted:,}")
        facts.add_row("different words", f"{progress.distinct:,}")
        facts.add_row("words/s", f"{self._speed.of(progress):,.0f}")
        tasks = Table.grid(padding=(0, 1))
        for thread, ids in by_thread(progress.tasks).items():
            tasks.add_row(f"[magenta]{thread}[/]")
            tasks.add_row(f"  {' '.join(ids)}")
        bar = ProgressBar(total=progress.expected, completed=progress.counted, width=28)
        return Panel(Group(facts, "", bar, "", tasks), title="application", width=34)


def by_thread(tasks: list[Task]) -> dict[str, list[str]]:
    """Return the sorted task ids by the last part of the thread's name."""
    threads: dict[str, list[str]] = {}
    for task in sorted(tasks, key=lambda task: (task.thread, task.task_id)):
        name = "StreamThread-" + task.thread.rpartition("StreamThread-")[2]
        threads.setdefault(name, []).append(task.task_id)
    return threads
