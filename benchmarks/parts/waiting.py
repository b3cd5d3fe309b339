"""The rate of waiting tasks, compared with Decaton 9.5.

Measures subscriptions and `map_async`.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import marks
from decaton import DecatonUnavailable, Work, fill, run_decaton
from harness.answers import answer_server
from harness.broker import Cluster
from harness.measure import CLOSE_DEADLINE_S, Committed, RunFailedError, kill
from ours_async import PROGRAMS

#: The number of tasks is chosen so that a case takes this long if each task only waits 10 ms.
SECONDS = 5
MAX_TASKS = 100_000
NOOP_TASKS = 500_000
ROUNDS = 3
_WAIT_S = 0.01
_START_DEADLINE_S = 120.0
_MIN_TASKS_PER_S = 20
_POLL_S = 0.02
#: The maximum length of the output in error messages.
_TAIL = 2_000
PEER = "decaton"
TITLES = {
    "async": "subscription, async",
    "threads": "subscription, plain",
    "map_async": "map_async",
    PEER: "Decaton 9.5",
}


@dataclass(frozen=True, slots=True)
class Case:
    """The kind of work, the partitions, and the concurrency per partition."""

    work: Work
    partitions: int
    concurrency: int

    @property
    def title(self) -> str:
        return f"{self.work} {self.partitions} x {self.concurrency}"

    def tasks(self, maximum: int | None) -> int:
        """Return the number of tasks."""
        if self.work == "noop":
            return min(NOOP_TASKS, maximum or NOOP_TASKS)
        task_count = int(SECONDS * self.partitions * self.concurrency / _WAIT_S)
        return min(task_count, MAX_TASKS, maximum or MAX_TASKS)


SPREADS = ((1, 1), (1, 20), (1, 100), (1, 300), (1, 1_000), (3, 20))
WAITING: tuple[Work, ...] = ("sleep", "http")
CASES = (
    *(Case(work, *spread) for work in WAITING for spread in SPREADS),
    # With a concurrency of 1, plain functions are called in the loop.
    *(Case("noop", partitions, at_a_time) for partitions in (1, 3) for at_a_time in (1, 100)),
)
SMOKE_CASES = (Case("http", 1, 20),)
SMOKE_TASKS = 400


@dataclass(frozen=True, slots=True)
class TaskRate:
    """Tasks per second of one run."""

    case: str
    program: str
    round: int
    tasks: int
    rate: float


class AsyncRounds:
    """The rounds of all cases on one broker."""

    def __init__(self, options: argparse.Namespace, cluster: Cluster, folder: Path) -> None:
        self.options = options
        self.cluster = cluster
        self.folder = folder / "async"
        self.rounds: int = options.rounds or ROUNDS
        self.cases = SMOKE_CASES if options.smoke else CASES
        self.maximum = options.records or (SMOKE_TASKS if options.smoke else None)
        self.programs = [*PROGRAMS] if "ours" in options.programs else []
        if "java" in options.programs:
            self.programs.append(PEER)
        #: Why there are no results of Decaton; empty if there are.
        self.no_peer = ""
        self.results: list[TaskRate] = []

    def run(self) -> dict[str, Any]:
        """Run all rounds and print results; return the results to save."""
        print(f"{'tasks':14} {'round':>5}  {'program':20} {'tasks/s':>11} {'tasks':>9}", flush=True)
        with answer_server() as url:
            for case in self.cases:
                self._run_case(case, url)
        table = self._medians()
        self._print_medians(table)
        return {"medians": table, "runs": [asdict(result) for result in self.results]}

    def _run_case(self, case: Case, url: str) -> None:
        tasks = case.tasks(self.maximum)
        topic = f"{self.cluster.prefix}-{case.title.replace(' ', '-')}"
        fill(self.cluster.servers, topic, case.partitions, tasks)
        for number in range(1, self.rounds + 1):
            # The order alternates, so that no program benefits from a warmer machine.
            for program in self.programs if number % 2 else reversed(self.programs):
                rate = self._rate(program, case, topic, tasks, url)
                if rate is None:
                    continue
                self.results.append(TaskRate(case.title, program, number, tasks, rate))
                print(
                    f"{case.title:14} {number:>5}  {TITLES[program]:20} {rate:>11,.0f} {tasks:>9,}",
                    flush=True,
                )
        self.cluster.delete_topics(topic)

    def _rate(self, program: str, case: Case, topic: str, tasks: int, url: str) -> float | None:
        if program != PEER:
            return self._ours(program, case, topic, tasks, url)
        if self.no_peer:
            return None
        try:
            return run_decaton(
                self.cluster.servers,
                topic,
                case.partitions,
                case.concurrency,
                case.work,
                tasks=tasks,
                url=url,
            )
        except DecatonUnavailable as reason:
            self.no_peer = str(reason)
            print(f"Decaton is skipped: {reason}", flush=True)
            return None

    def _ours(self, program: str, case: Case, topic: str, tasks: int, url: str) -> float:
        group = f"{self.cluster.prefix}-{program}-{time.time_ns() // 1_000_000:x}"
        folder = self.folder / group
        folder.mkdir(parents=True)
        marks_file, log = folder / "marks.jsonl", folder / "output.log"
        line = [sys.executable, str(Path(__file__).parents[1] / "ours_async.py"), program]
        line += [self.cluster.servers, topic, group, str(case.concurrency), case.work]
        line += [str(tasks), url, str(marks_file), str(folder)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                line,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                took_ns = _took_ns(
                    process, marks_file, _START_DEADLINE_S + tasks / _MIN_TASKS_PER_S
                )
                process.send_signal(signal.SIGTERM)
                code = process.wait(CLOSE_DEADLINE_S)
            except (TimeoutError, subprocess.TimeoutExpired) as error:
                raise self._failed(program, case, str(error), log) from None
            finally:
                kill(process)
        committed = Committed(self.cluster.servers, group, topic).total()
        if code or took_ns is None or committed != tasks:
            failure = f"ended with code {code}, with {committed:,} of {tasks:,} tasks committed"
            raise self._failed(program, case, failure, log)
        shutil.rmtree(folder)
        return tasks * 1e9 / took_ns

    def _failed(self, program: str, case: Case, failure: str, log: Path) -> RunFailedError:
        tail = log.read_text(errors="replace")[-_TAIL:]
        return RunFailedError(
            f"{TITLES[program]} {failure} ({case.title}). Its output ends:\n{tail}"
        )

    def _medians(self) -> dict[str, dict[str, Any]]:
        """Return the median and its ratio to Decaton, by case and program."""
        table: dict[str, dict[str, Any]] = {}
        for case in self.cases:
            medians = {
                program: statistics.median(rates)
                for program in TITLES
                if (rates := [r.rate for r in self.results if _is_of(r, case, program)])
            }
            peer = medians.get(PEER)
            table[case.title] = {
                program: {"rate": rate, "ratio": rate / peer if peer else None}
                for program, rate in medians.items()
            }
        return table

    def _print_medians(self, table: dict[str, dict[str, Any]]) -> None:
        heads = " ".join(f"{TITLES[each]:>20} {'ratio':>6}" for each in PROGRAMS)
        print(f"\n{'medians':14} {heads} {TITLES[PEER]:>12}")
        for title, entries in table.items():
            cells = [f"{title:14}"]
            for program in PROGRAMS:
                entry = entries.get(program, {})
                cells.append(_number(entry.get("rate"), 20))
                cells.append(f"{entry['ratio']:>6.2f}" if entry.get("ratio") else f"{'–':>6}")
            cells.append(_number(entries.get(PEER, {}).get("rate"), 12))
            print(" ".join(cells))
        if self.no_peer:
            print(f"\nThere are no results of Decaton: {self.no_peer}")


def _took_ns(process: subprocess.Popen[bytes], marks_file: Path, deadline_s: float) -> int | None:
    """Return the total time of the tasks; None if the program ended before."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        for mark in marks.read(marks_file):
            return int(mark.split()[1])
        if process.poll() is not None:
            return None
        time.sleep(_POLL_S)
    raise TimeoutError(f"did not complete all tasks within {deadline_s:.0f} s")


def _is_of(result: TaskRate, case: Case, program: str) -> bool:
    return (result.case, result.program) == (case.title, program)


def _number(rate: float | None, width: int) -> str:
    return f"{rate:>{width},.0f}" if rate else f"{'–':>{width}}"
