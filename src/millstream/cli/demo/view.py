"""How the demo is seen: a live table on a terminal, a line every two seconds elsewhere."""

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
from millstream.cli.output import console, say

_SPEED_OVER_S: Final = 4.0
_TABLE_EACH_S: Final = 0.25
_LINE_EACH_S: Final = 2.0
_BAR: Final = 24


@dataclass(frozen=True, slots=True)
class Moment:
    """All that is shown at one time."""

    elapsed_s: float
    state: str
    sent: int
    wanted: int
    added_up: int
    totals: Mapping[str, Totals]
    tasks: Mapping[str, list[str]] = field(default_factory=dict)


class View(Protocol):
    """Somewhere to show it."""

    def show(self, moment: Moment, *, last: bool = False) -> None:
        """Show it, if it is time to, or the last."""


@contextmanager
def view(*, quiet: bool) -> Iterator[View]:
    """What fits the output: nothing, a live table, or lines."""
    if quiet:
        yield _Nothing()
        return
    target = console(to_stderr=True)
    if not target.is_terminal:
        yield _Lines()
        return
    with Live(console=target, auto_refresh=False) as live:
        yield _LiveTable(live)


class _Nothing:
    def show(self, moment: Moment, *, last: bool = False) -> None:
        return


class _Pace:
    """Whether it is time to show again, and how fast orders are added up meanwhile."""

    def __init__(self, each_s: float) -> None:
        self._each_s = each_s
        self._next = 0.0
        # As many as are shown within the time over which the speed is measured.
        self._samples: deque[tuple[float, int]] = deque()

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._each_s
        return True

    def speed(self, moment: Moment) -> float:
        samples = self._samples
        samples.append((moment.elapsed_s, moment.added_up))
        while moment.elapsed_s - samples[0][0] > _SPEED_OVER_S and len(samples) > 2:
            samples.popleft()
        seconds = moment.elapsed_s - samples[0][0]
        return (moment.added_up - samples[0][1]) / seconds if seconds > 0 else 0.0


class _Lines:
    def __init__(self) -> None:
        self._pace = _Pace(_LINE_EACH_S)

    def show(self, moment: Moment, *, last: bool = False) -> None:
        if self._pace.is_due() or last:
            say(
                f"{moment.elapsed_s:5.1f} s  {moment.state}  {moment.sent:,} of {moment.wanted:,} "
                f"orders sent, {moment.added_up:,} added up ({self._pace.speed(moment):,.0f}/s)"
            )


class _LiveTable:
    def __init__(self, live: Live) -> None:
        self._live = live
        self._pace = _Pace(_TABLE_EACH_S)

    def show(self, moment: Moment, *, last: bool = False) -> None:
        if self._pace.is_due() or last:
            screen = Table.grid(padding=(0, 3))
            screen.add_row(_products(moment), self._application(moment))
            self._live.update(screen, refresh=True)

    def _application(self, moment: Moment) -> Group:
        facts = Table.grid(padding=(0, 2))
        facts.add_column(style="dim")
        facts.add_column(justify="right", style="bold")
        facts.add_row("state", moment.state)
        facts.add_row("time", f"{moment.elapsed_s:.0f} s")
        facts.add_row("orders sent", f"{moment.sent:,}")
        facts.add_row("added up", f"{moment.added_up:,}")
        facts.add_row("a second", f"{self._pace.speed(moment):,.0f}")
        facts.add_row("", ProgressBar(max(1, moment.wanted), moment.added_up, width=20))
        threads = Table.grid(padding=(0, 2))
        threads.add_column(style="dim")
        for name, tasks in moment.tasks.items():
            threads.add_row(name.rpartition("-StreamThread-")[2] or name, " ".join(tasks))
        return Group(
            Panel(facts, title="application", border_style="dim", expand=False),
            Panel(threads, title="tasks of threads", border_style="dim", expand=False),
        )


def _products(moment: Moment) -> Table:
    table = Table(title="revenue", title_style="bold", box=None, pad_edge=False)
    table.add_column("product", style="cyan", min_width=10)
    table.add_column("orders", justify="right", min_width=8)
    table.add_column("revenue", justify="right", style="bold", min_width=14)
    table.add_column("", min_width=_BAR)
    ranked = sorted(moment.totals.items(), key=lambda entry: -entry[1]["cents"])
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
