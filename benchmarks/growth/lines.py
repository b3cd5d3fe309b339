"""Measurements at increasing sizes: rounds, results and output."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """The result for one size.

    Attributes:
        what: the name of the measurement, the same for all sizes.
        median: the median of the rounds.
        least: the minimum of the rounds.
        most: the maximum of the rounds.
        ratio: the ratio to the smallest size of the same measurement; None if there is no ratio.
    """

    what: str
    size: int
    median: float
    least: float
    most: float
    ratio: float | None = None

    @classmethod
    def of(cls, what: str, size: int, rounds: Sequence[float]) -> Row:
        """Return the row for the results of the rounds."""
        return cls(what, size, statistics.median(rounds), min(rounds), max(rounds))


@dataclass(frozen=True, slots=True)
class Line:
    """The results of one measurement.

    Attributes:
        grows: the unit of the sizes.
        unit: the unit of the results.
        records: the number of records of each size in each round, if it matters.
    """

    grows: str
    unit: str
    rounds: int
    rows: Sequence[Row]
    records: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the line in its saved form."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Case:
    """A size to measure.

    `measure` gets the number of the round; round 0 is a warm-up.
    """

    what: str
    size: int
    measure: Callable[[int], float]


def in_turns(cases: Sequence[Case], rounds: int) -> list[Row]:
    """Measure all cases in each round, after a warm-up round."""
    found: list[list[float]] = [[] for _ in cases]
    for case in cases:
        case.measure(0)
    for number in range(1, rounds + 1):
        pairs = list(zip(cases, found, strict=True))
        # The order alternates between rounds.
        for case, numbers in pairs if number % 2 else reversed(pairs):
            numbers.append(case.measure(number))
    rows = [
        Row.of(case.what, case.size, numbers) for case, numbers in zip(cases, found, strict=True)
    ]
    return with_ratios(rows)


def with_ratios(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with their ratios to the smallest size of the same measurement."""
    smallest: dict[str, Row] = {}
    for row in rows:
        if row.what not in smallest or row.size < smallest[row.what].size:
            smallest[row.what] = row
    return [
        # There is no ratio to zero.
        replace(row, ratio=row.median / least if (least := smallest[row.what].median) else None)
        for row in rows
    ]


def show(name: str, line: Line) -> None:
    """Print a line of the part, with a row for each size."""
    print(
        f"\n{name:44} {line.grows:>11} {line.unit:>14} {'min to max':>21} {'ratio':>6}",
        flush=True,
    )
    for row in line.rows:
        spread = f"{row.least:,.2f} to {row.most:,.2f}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        print(f"{row.what:44} {row.size:>11,} {row.median:>14,.2f} {spread:>21} {ratio:>6}")
