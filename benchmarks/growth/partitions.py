"""The cost of a record by the number of partitions, with a broker.

The thread has one task for each partition.

All sizes have the same records, spread over all partitions. By default, the output has as many
partitions as the input. The results of `throughput` are converted to microseconds per record;
`warm` is its steady rate.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from harness.broker import Cluster
from parts.throughput import Case, Throughput, print_head
from programs import ENGINES, TITLES

from growth.lines import Line, Row, with_ratios
from growth.tasks import TASKS

#: The same sizes as for tasks without a broker, to separate the cost of the tasks.
SIZES = TASKS
JOBS = ("stateless", "count")
RECORDS = 2_000_000
SMOKE_RECORDS = 20_000
#: The job that is also measured with an output of one partition.
_SINGLE_OUTPUT = "count"


class PartitionCosts:
    """The rounds of each number of partitions, in turns.

    Args:
        options: the options of `bench.py`.
        folder: the folder for the state of the programs.
        programs: the programs to measure.
        sizes: the numbers of partitions.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        cluster: Cluster,
        folder: Path,
        *,
        rounds: int,
        programs: Sequence[str],
        sizes: Sequence[int] = SIZES,
    ) -> None:
        self._rounds = rounds
        self._programs = [each for each in programs if each in ENGINES]
        jobs: list[str] = list(options.jobs or JOBS)
        self._runs: dict[int, Throughput] = {}
        usual = SMOKE_RECORDS if options.smoke else RECORDS
        self._records: int = options.records or usual
        for size in sizes:
            changed = {"partitions": size, "records": self._records}
            given = argparse.Namespace(**{**vars(options), **changed})
            place = folder / f"partitions-{size}"
            # Other parts cover all cases except the last one.
            cases = _cases(jobs, size)[-1:] if options.smoke else _cases(jobs, size)
            self._runs[size] = Throughput(given, cluster, place, cases)

    def line(self) -> Line:
        """Run all rounds and print each run."""
        for runs in self._runs.values():
            for case in runs.cases:
                runs.load_for(case.job)
        print_head()
        for number in range(1, self._rounds + 1):
            sizes = list(self._runs)
            for size in sizes if number % 2 else reversed(sizes):
                for case in self._runs[size].cases:
                    for program in self._programs:
                        self._runs[size].one(program, case, number)
        rows = [row for size, runs in self._runs.items() for row in self._rows(size, runs)]
        rows.sort(key=lambda row: (row.what, row.size))
        return Line("partitions", "µs per record", self._rounds, with_ratios(rows), self._records)

    def _rows(self, size: int, runs: Throughput) -> list[Row]:
        rows = []
        for case in runs.cases:
            for program in self._programs:
                found = [
                    each
                    for each in runs.results
                    if (each.job, each.program) == (case.title, program)
                ]
                row_title = case.job
                if case.output_partitions is not None:
                    row_title = f"{case.job}, one output partition"
                if program != "ours":
                    row_title = f"{row_title}, {TITLES[program]}"
                rows.append(Row.of(row_title, size, [1e6 / each.rate for each in found]))
                warm = [1e6 / each.steady_rate for each in found if each.steady_rate]
                if warm:
                    rows.append(Row.of(f"{row_title}, warm", size, warm))
        return rows


def _cases(jobs: Sequence[str], size: int) -> list[Case]:
    cases = [Case(job, f"of {size}") for job in jobs]
    if _SINGLE_OUTPUT in jobs:
        cases.append(Case(_SINGLE_OUTPUT, f"of {size} to one", output_partitions=1))
    return cases
