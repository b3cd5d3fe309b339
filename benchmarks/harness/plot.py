"""Charts of horizontal bars as SVG text, for light and dark backgrounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

#: Narrow, so that the labels are legible on a phone.
WIDTH, LABELS, RIGHT = 480, 170, 44
BAR, GAP, TOP, BOTTOM = 9, 7, 52, 28
#: The colors of the series, on a light and on a dark background; distinguishable for color-blind
#: readers.
COLORS = (("#9db8c9", "#4d6b7d"), ("#0072b2", "#56b4e9"), ("#e69f00", "#e69f00"))
#: Ground, text, grid lines, and the line at 1.
_LIGHT = ("#ffffff", "#1f2328", "#d8dee4", "#57606a")
_DARK = ("#131416", "#e6edf3", "#30363d", "#8b949e")


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
        body.append(_text(LABELS - 8, y + len(bars) * BAR / 2 + 4, label, "end"))
        for bar in bars:
            body += _bar(bar, y, scale, series.index(bar.series))
            y += BAR
        y += GAP
    grid = []
    for number in range(math.ceil(highest / step) + 1):
        x = LABELS + number * step * scale
        grid.append(_line("grid", x, TOP - 4, x, y))
        grid.append(_text(x, y + 15, f"{number * step:g}", "middle"))
    grid.append(_line("one", LABELS + scale, TOP - 4, LABELS + scale, y))
    height = y + BOTTOM
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-size="12" '
            'font-family="system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif">',
            _styles(len(series)),
            f'<rect class="ground" width="{WIDTH}" height="{height}" rx="8"/>',
            _text(12, 20, title, "start", bold=True),
            *_legend(series),
            *grid,
            *body,
            "</svg>\n",
        ]
    )


def _styles(series: int) -> str:
    rules = []
    for dark, (ground, text, grid, one) in enumerate((_LIGHT, _DARK)):
        bars = "".join(f".s{number}{{fill:{COLORS[number][dark]}}}" for number in range(series))
        rules.append(
            f".ground{{fill:{ground}}}text{{fill:{text}}}.spread{{stroke:{text}}}"
            f".grid{{stroke:{grid}}}.one{{stroke:{one}}}{bars}"
        )
    return f"<style>{rules[0]}\n@media (prefers-color-scheme:dark){{{rules[1]}}}</style>"


def _step(highest: float) -> float:
    """Return a round distance between grid lines, for at most six lines."""
    power: float = 10.0 ** math.floor(math.log10(highest))
    return next(part * power for part in (0.2, 0.5, 1.0, 2.0) if highest / (part * power) <= 5)


def _bar(bar: Bar, y: float, scale: float, number: int) -> list[str]:
    middle = y + BAR / 2
    most = LABELS + bar.most * scale
    return [
        f'<rect class="s{number}" x="{LABELS}" y="{y}" width="{bar.value * scale:.1f}" '
        f'height="{BAR - 1}"/>',
        _line("spread", LABELS + bar.least * scale, middle, most, middle),
    ]


def _legend(series: Sequence[str]) -> list[str]:
    parts: list[str] = []
    x = 12
    for number, name in enumerate(series):
        parts.append(f'<rect class="s{number}" x="{x}" y="29" width="10" height="10"/>')
        parts.append(_text(x + 14, 38, name, "start"))
        x += 34 + 7 * len(name)
    parts.append(_line("spread", x, 34, x + 14, 34))
    parts.append(_text(x + 20, 38, "minimum to maximum", "start"))
    return parts


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'
