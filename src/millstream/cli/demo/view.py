"""The output of the demo: a live table in a terminal, otherwise lines."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from millstream.cli.demo.shop import Totals
from millstream.cli.output import console, print_message

_RATE_WINDOW_S: Final = 4.0
_TABLE_INTERVAL_S: Final = 0.25
_LINE_INTERVAL_S: Final = 2.0
_BAR: Final = 24


@dataclass(frozen=True, slots=True)
class DemoProgress:
    elapsed_s: float
    state: str
    sent: int
    wanted: int
    added_up: int
    totals: Mapping[str, Totals]
    tasks: Mapping[str, list[str]] = field(default_factory=dict)


class DemoView(Protocol):
    def show(self, progress: DemoProgress, *, last: bool = False) -> None:
        """Show the progress if an update is due, or if this is the last one."""


@contextmanager
def view(*, quiet: bool) -> Iterator[DemoView]:
    """Yield the view for the output: none, a live table, or lines."""
    if quiet:
        yield _NoView()
        return
    target = console(to_stderr=True)
    if not target.is_terminal:
        yield _Lines()
        return
    with Live(console=target, auto_refresh=False) as live:
        yield _LiveTable(live)


class _NoView:
    def show(self, progress: DemoProgress, *, last: bool = False) -> None:
        return


class _Throttle:
    """Limits the rate of updates, and measures the rate of orders."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._next = 0.0
        # The updates within the window over which the rate is measured.
        self._samples: deque[tuple[float, int]] = deque()

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._interval_s
        return True

    def rate(self, progress: DemoProgress) -> float:
        samples = self._samples
        samples.append((progress.elapsed_s, progress.added_up))
        while progress.elapsed_s - samples[0][0] > _RATE_WINDOW_S and len(samples) > 2:
            samples.popleft()
        seconds = progress.elapsed_s - samples[0][0]
        return (progress.added_up - samples[0][1]) / seconds if seconds > 0 else 0.0


class _Lines:
    def __init__(self) -> None:
        self._throttle = _Throttle(_LINE_INTERVAL_S)

    def show(self, progress: DemoProgress, *, last: bool = False) -> None:
        if self._throttle.is_due() or last:
            print_message(
                f"{progress.elapsed_s:5.1f} s  {progress.state}  {progress.sent:,} of "
                f"{progress.wanted:,} orders sent, {progress.added_up:,} added up "
                f"({self._throttle.rate(progress):,.0f}/s)"
            )


class _LiveTable:
    def __init__(self, live: Live) -> None:
        self._live = live
        self._throttle = _Throttle(_TABLE_INTERVAL_S)

    def show(self, progress: DemoProgress, *, last: bool = False) -> None:
        if self._throttle.is_due() or last:
            screen = Table.grid(padding=(0, 3))
            screen.add_row(_products(progress), self._application(progress))
            self._live.update(screen, refresh=True)

    def _application(self, progress: DemoProgress) -> Group:
        facts = Table.grid(padding=(0, 2))
        facts.add_column(style="dim")
        facts.add_column(justify="right", style="bold")
        facts.add_row("state", progress.state)
        facts.add_row("time", f"{progress.elapsed_s:.0f} s")
        facts.add_row("orders sent", f"{progress.sent:,}")
        facts.add_row("added up", f"{progress.added_up:,}")
        facts.add_row("per second", f"{self._throttle.rate(progress):,.0f}")
        facts.add_row("", ProgressBar(max(1, progress.wanted), progress.added_up, width=20))
        threads = Table.grid(padding=(0, 2))
        threads.add_column(style="dim")
        for name, tasks in progress.tasks.items():
            threads.add_row(name.rpartition("-StreamThread-")[2] or name, " ".join(tasks))
        return Group(
            Panel(facts, title="application", border_style="dim", expand=False),
            Panel(threads, title="tasks of threads", border_style="dim", expand=False),
        )


def _products(progress: DemoProgress) -> Table:
    table = Table(title="revenue", title_style="bold", box=None, pad_edge=False)
    table.add_column("product", style="cyan", min_width=10)
    table.add_column("orders", justify="right", min_width=8)
    table.add_column("revenue", justify="right", style="bold", min_width=14)
    table.add_column("", min_width=_BAR)
    ranked = sorted(progress.totals.items(), key=lambda entry: -entry[1]["cents"])
    largest = max((totals["cents"] for _, totals in ranked), default=1)
    for product, totals in ranked:
        length = max(1, round(_BAR * totals["cents"] / largest))
        table.add_row(
            product,
            f"{totals['orders']:,}",
            f"{totals['cents'] / 100:,.2f}",
            Text("█" * length, style="green"),
        )
    return table
