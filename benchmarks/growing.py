"""What a record costs when there is more of everything: how it is measured and told."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """A number of one size.

    Attributes:
        what: that is measured, the same for all sizes.
        size: how much there is of what grows.
        median: of the rounds.
        least: of the rounds.
        most: of the rounds.
        ratio: to the smallest size of the same; None where sizes do not grow.
    """

    what: str
    size: int
    median: float
    least: float
    most: float
    ratio: float | None = None

    @classmethod
    def of(cls, what: str, size: int, rounds: Sequence[float]) -> Row:
        """What came of the rounds."""
        return cls(what, size, statistics.median(rounds), min(rounds), max(rounds))


@dataclass(frozen=True, slots=True)
class Line:
    """Everything of one kind that is measured.

    Attributes:
        grows: what sizes are a number of.
        unit: of the numbers.
        rounds: how many.
        rows: what is told.
        records: of each size in each round, where they make a difference.
    """

    grows: str
    unit: str
    rounds: int
    rows: Sequence[Row]
    records: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """As it is saved."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Case:
    """One size of what is measured; `measure` gets the number of the round, 0 to warm up."""

    what: str
    size: int
    measure: Callable[[int], float]


def in_turns(cases: Sequence[Case], rounds: int) -> list[Row]:
    """Measure all cases in each round, after one that only warms up."""
    found: list[list[float]] = [[] for _ in cases]
    for case in cases:
        case.measure(0)
    for number in range(1, rounds + 1):
        pairs = list(zip(cases, found, strict=True))
        # Who comes first is not always the same.
        for case, numbers in pairs if number % 2 else reversed(pairs):
            numbers.append(case.measure(number))
    rows = [
        Row.of(case.what, case.size, numbers) for case, numbers in zip(cases, found, strict=True)
    ]
    return with_ratios(rows)


def with_ratios(rows: Sequence[Row]) -> list[Row]:
    """The rows, each with its ratio to the smallest size of the same."""
    smallest: dict[str, Row] = {}
    for row in rows:
        if row.what not in smallest or row.size < smallest[row.what].size:
            smallest[row.what] = row
    return [
        # Of what takes nothing, nothing is a multiple.
        replace(row, ratio=row.median / least if (least := smallest[row.what].median) else None)
        for row in rows
    ]


def show(name: str, line: Line) -> None:
    """Print a line of the part, a row a size."""
    print(
        f"\n{name:44} {line.grows:>11} {line.unit:>14} {'least to most':>21} {'ratio':>6}",
        flush=True,
    )
    for row in line.rows:
        spread = f"{row.least:,.2f} to {row.most:,.2f}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        print(f"{row.what:44} {row.size:>11,} {row.median:>14,.2f} {spread:>21} {ratio:>6}")
