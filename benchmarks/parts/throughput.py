"""Records per second of each job.

The programs run in turns, and read the same topic.

The part `guarantees` does the same for both processing guarantees and two commit intervals.
"""

from __future__ import annotations

import argparse
import pstats
import shutil
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import workload
from harness.broker import Cluster
from harness.check import records_of
from harness.load import Load, create_topic
from harness.measure import Measured, RunFailedError, measure, records_on
from programs import ENGINES, JOBS, PROGRAMS, SUPPORTED_JOBS, TITLES, Run

RECORDS = 2_000_000
ROUNDS = 5
SMOKE_RECORDS = 100_000
PROFILE_LINES = 10
#: The default jobs of the part `guarantees`.
GUARANTEE_JOBS = ("stateless", "count", "rekeyed")
GUARANTEES = {"alo": "at_least_once", "eos": "exactly_once_v2"}


@dataclass(frozen=True, slots=True)
class Case:
    """A job with settings, and a name for the variant. For `closes_on`, see `Run`.

    By default, the output has as many partitions as the input.
    """

    job: str
    name: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    closes_on: str = "last"
    output_partitions: int | None = None

    @property
    def title(self) -> str:
        return f"{self.job} {self.name}".rstrip()


def plain(options: argparse.Namespace) -> list[Case]:
    """Return each job once, with the settings of `programs.py`."""
    return [Case(job) for job in options.jobs or JOBS]


def guarantees(options: argparse.Namespace) -> list[Case]:
    """Return the jobs with both guarantees and all commit intervals."""
    return [
        Case(
            job,
            f"{short} {interval_ms} ms",
            {
                "processing.guarantee": guarantee,
                "commit.interval.ms": str(interval_ms),
                # Kafka Streams' default, or longer if the interval requires it.
                "producer.transaction.timeout.ms": str(max(10_000, 2 * interval_ms)),
            },
        )
        for job in options.jobs or GUARANTEE_JOBS
        for interval_ms in options.commit_intervals
        for short, guarantee in GUARANTEES.items()
    ]


class Throughput:
    """The rounds of several cases on one broker.

    Workloads with the same input share it.
    """

    def __init__(
        self, options: argparse.Namespace, cluster: Cluster, folder: Path, cases: list[Case]
    ) -> None:
        self.options = options
        self.cases = cases
        self.records = options.records or (SMOKE_RECORDS if options.smoke else RECORDS)
        self.rounds: int = options.rounds or ROUNDS
        self.cluster = cluster
        self.folder = folder
        self.results: list[Measured] = []
        self._loads: dict[str, Load] = {}
        self._answers: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        """Run all rounds and print results; return the results to save."""
        for case in self.cases:
            self.load_for(case.job)
        print_head()
        for case in self.cases:
            programs = [each for each in self.options.programs if _supports(each, case)]
            for number in range(1, self.rounds + 1):
                # The order alternates, so that no program benefits from a warmer machine.
                for program in programs if number % 2 else reversed(programs):
                    self.one(program, case, number)
        table = summary(self.results, [case.title for case in self.cases])
        print_summary(table)
        if self.options.profile:
            self.profile()
        return {
            "records": self.records,
            "keys": self.options.keys,
            "rounds": self.rounds,
            "medians": table,
            "runs": [result.to_dict() for result in self.results],
        }

    def load_for(self, job: str) -> Load:
        """Return the input of a job, which is written on first use."""
        load_workload = workload.find(job)
        if load_workload.input in self._loads:
            return self._loads[load_workload.input]
        load = Load(
            self.cluster.servers,
            f"{self.cluster.prefix}-{self.folder.name}-{load_workload.input}",
            self.records,
            self.options.keys,
            self.options.partitions,
        )
        began = time.monotonic()
        load_workload.fill(load)
        topics = [load.topic, *(load.other_topic(name) for name in load_workload.other_inputs)]
        loaded = sum(records_on(load.servers, topic) for topic in topics)
        if loaded != load.records:
            raise RunFailedError(f"{loaded:,} of {load.records:,} records were loaded.")
        print(
            f"loaded {loaded:,} records ({load_workload.input}) on {load.partitions} partitions in "
            f"{time.monotonic() - began:.1f} s",
            flush=True,
        )
        self._loads[load_workload.input] = load
        return load

    def one(self, program: str, case: Case, number: int, profile: Path | None = None) -> None:
        """Run a program with new topics, group and state, and verify its output."""
        job = workload.find(case.job)
        load = self.load_for(case.job)
        if case.job not in self._answers:
            self._answers[case.job] = job.answer(load)
        words = [self.cluster.prefix, *case.title.split(), program, str(number)]
        name = "-".join([*words, "profiled"] if profile else words)
        run = Run(
            program=program,
            job=case.job,
            case=case.name,
            settings=case.settings,
            closes_on=case.closes_on,
            other_topics=(
                *(load.other_topic(topic) for topic in job.other_inputs),
                *(f"{name}-{topic}" for topic in job.internal_topics),
            ),
            is_complete_when_committed=job.is_complete_when_committed,
            round=number,
            application_id=name,
            bootstrap_servers=load.servers,
            input_topic=load.topic,
            output_topic=f"{name}-output",
            records=self.records,
            folder=self.folder / name,
            profile=profile,
        )
        partitions = case.output_partitions or self.options.partitions
        create_topic(load.servers, run.output_topic, partitions)
        measured = measure(run)
        wrong = job.wrong(self._answers[case.job], records_of(load.servers, run.output_topic))
        self.cluster.delete_topics(name)
        shutil.rmtree(run.folder)
        if wrong is not None:
            raise RunFailedError(f"{TITLES[program]}, job {case.title}, round {number}: {wrong}")
        if profile is None:
            self.results.append(measured)
        print(_line(measured), flush=True)

    def profile(self) -> None:
        """Profile another run of each job, and print the most expensive functions."""
        for case in self.cases:
            file = self.folder / f"{case.title}.prof"
            self.one("ours", case, 0, profile=file)
            print(f"\n{case.title}: the stream thread's functions with the most internal time")
            stats = pstats.Stats(str(file))
            stats.sort_stats(pstats.SortKey.TIME).print_stats(PROFILE_LINES)


def _supports(program: str, case: Case) -> bool:
    """Return whether a program supports the job with the requested guarantee."""
    exactly_once = case.settings.get("processing.guarantee") == GUARANTEES["eos"]
    return case.job in SUPPORTED_JOBS.get(program, JOBS) and (
        program in ENGINES or not exactly_once
    )


def print_head() -> None:
    """Print the column headings of the runs."""
    print(
        f"\n{'job':22} {'round':>5}  {'program':20} {'records/s':>11} {'steady':>11} "
        f"{'start s':>8} {'run s':>7}  output",
        flush=True,
    )


def _line(measured: Measured) -> str:
    steady = f"{measured.steady_rate:,.0f}" if measured.steady_rate else "–"
    return (
        f"{measured.job:22} {measured.round:>5}  {TITLES[measured.program]:20} "
        f"{measured.rate:>11,.0f} {steady:>11} "
        f"{measured.start_s:>8.1f} {measured.committed_s:>7.2f}  correct"
    )


def summary(results: list[Measured], jobs: list[str]) -> dict[str, dict[str, Any]]:
    """Return medians, ranges, and ratios to Kafka Streams, by job and program."""
    table: dict[str, dict[str, Any]] = {}
    for job in jobs:
        runs = {
            program: {one.round: one for one in results if (one.job, one.program) == (job, program)}
            for program in PROGRAMS
        }
        table[job] = {
            program: {
                **_compared("rate", "ratio", own, runs["java"]),
                **_compared("steady_rate", "steady_ratio", own, runs["java"]),
            }
            for program, own in runs.items()
            if own
        }
    return table


def _compared(
    rate: str, ratio: str, own: dict[int, Measured], java: dict[int, Measured]
) -> dict[str, Any]:
    """Return a rate and its ratio to Kafka Streams.

    Each has the median, the minimum and the maximum of the rounds.
    """
    ours, theirs = (
        {number: value for number, one in runs.items() if (value := getattr(one, rate)) is not None}
        for runs in (own, java)
    )
    if not ours:
        return {rate: None}
    entry = {rate: statistics.median(ours.values()), f"{rate}_spread": _spread(ours.values())}
    if theirs:
        entry[ratio] = entry[rate] / statistics.median(theirs.values())
        # By round, because runs of the same round had similar conditions.
        both = [value / theirs[number] for number, value in ours.items() if number in theirs]
        if both:
            entry[f"{ratio}_spread"] = _spread(both)
    return entry


def _spread(values: Iterable[float]) -> tuple[float, float]:
    found = list(values)
    return min(found), max(found)


def print_summary(table: dict[str, dict[str, Any]]) -> None:
    """Print medians with their minimum and maximum, and ratios to Kafka Streams."""
    print(
        f"\n{'medians':22} {'program':20} {'records/s':>11} {'min to max':>23} {'ratio':>6} "
        f"{'steady':>11} {'ratio':>6}"
    )
    for job, entries in table.items():
        for program, entry in entries.items():
            least, most = entry["rate_spread"]
            cells = [
                f"{job:22} {TITLES[program]:20} {entry['rate']:>11,.0f}",
                f"{f'{least:,.0f} to {most:,.0f}':>23}",
                f"{entry['ratio']:>6.2f}" if entry.get("ratio") else f"{'–':>6}",
                f"{entry['steady_rate']:>11,.0f}" if entry["steady_rate"] else f"{'–':>11}",
                f"{entry['steady_ratio']:>6.2f}" if entry.get("steady_ratio") else f"{'–':>6}",
            ]
            print(" ".join(cells))
    print()
    for job, entries in table.items():
        ours = entries.get("ours", {})
        if ours.get("ratio"):
            steady = ours.get("steady_ratio")
            print(
                f"{job}: Millstream / Kafka Streams = {ours['ratio']:.2f} over whole runs, "
                f"{f'{steady:.2f}' if steady else 'unknown'} once both are warm"
            )
