"""Charts of horizontal bars as SVG text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, LABELS, RIGHT = 760, 190, 70
BAR, GAP, TOP, BOTTOM = 13, 12, 56, 34
#: Distinguishable for color-blind readers.
COLORS = ("#0072b2", "#999999", "#e69f00", "#cc79a7", "#56b4e9", "#009e73")


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with its minimum and maximum."""

    series: str
    value: float
    least: float
    most: float


def chart(title: str, groups: Mapping[str, Sequence[Bar]], series: Sequence[str]) -> str:
    """Return a chart with the bars of each group below one another, and a line at 1.

    Args:
        groups: the bars by the label of their group.
        series: all series, in the order of their colors.
    """
    highest = max((bar.most for bars in groups.values() for bar in bars), default=1.0)
    step = _step(highest)
    scale = (WIDTH - LABELS - RIGHT) / (math.ceil(highest / step) * step)
    body: list[str] = []
    y = TOP
    for label, bars in groups.items():
        middle = y + len(bars) * BAR / 2 + 4
        body.append(_text(LABELS - 8, middle, label, "end"))
        for bar in bars:
            body += _bar(bar, y, scale, COLORS[series.index(bar.series) % len(COLORS)])
            y += BAR
        y += GAP
    grid = []
    for number in range(math.ceil(highest / step) + 1):
        x = LABELS + number * step * scale
        grid.append(_line(x, TOP - 6, x, y, "#dddddd"))
        grid.append(_text(x, y + 16, f"{number * step:g}", "middle"))
    grid.append(_line(LABELS + scale, TOP - 6, LABELS + scale, y, "#555555"))
    head = [_text(8, 18, title, "start", bold=True), *_legend(groups, series)]
    height = y + BOTTOM
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *head,
            *grid,
            *body,
            "</svg>\n",
        ]
    )


def _step(highest: float) -> float:
    """Return a round distance between grid lines, for four to ten lines."""
    power: float = 10.0 ** math.floor(math.log10(highest))
    return next(part * power for part in (0.1, 0.2, 0.5, 1.0) if highest / (part * power) <= 10)


def _bar(bar: Bar, y: float, scale: float, color: str) -> list[str]:
    middle = y + BAR / 2
    most = LABELS + bar.most * scale
    return [
        f'<rect x="{LABELS}" y="{y + 1}" width="{bar.value * scale:.1f}" height="{BAR - 2}" '
        f'fill="{color}"/>',
        _line(LABELS + bar.least * scale, middle, most, middle, "#000000"),
        _text(most + 5, middle + 4, f"{bar.value:.2f}", "start"),
    ]


def _legend(groups: Mapping[str, Sequence[Bar]], series: Sequence[str]) -> list[str]:
    there = {bar.series for bars in groups.values() for bar in bars}
    parts: list[str] = []
    x = 8.0
    for number, name in enumerate(series):
        if name in there:
            color = COLORS[number % len(COLORS)]
            parts.append(f'<rect x="{x:.0f}" y="29" width="10" height="10" fill="{color}"/>')
            parts.append(_text(x + 14, 38, name, "start"))
            x += 30 + 7 * len(name)
    return parts


def _line(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"/>'


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'
