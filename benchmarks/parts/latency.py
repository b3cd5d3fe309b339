"""The time from a record's due time to its result, at a steady rate.

One process sends records, another receives results, and the programs under test take turns. The
warm-up does not count.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import marks
from harness.broker import Cluster
from harness.load import create_topic
from harness.measure import Committed, RunFailedError, close, failed, started, wait_for
from programs import ENGINES, TITLES, Run

HERE = Path(__file__).parents[1]
JOBS = ("stateless", "count")
ROUNDS = 3
SMOKE_WARM_UP_S, SMOKE_SECONDS = 5, 5
#: More records than are ever sent, so that programs never reach the last record.
ENDLESS = 10**15
#: The deadline, in addition to the sending time.
DEADLINE_S = 120.0
#: Settings of all programs. Without a cache, `count` has one result per record.
SETTINGS = {
    "commit.interval.ms": "100",
    "statestore.cache.max.bytes": "0",
    "producer.linger.ms": "5",
}
#: The percentiles by name.
PERCENTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}


@dataclass(frozen=True, slots=True)
class Latencies:
    """The results of a run.

    Attributes:
        rate: the number of records sent per second.
        late_ms: the maximum lateness of the pacer, which is included in the latencies.
        results: the number of results that count.
    """

    job: str
    rate: int
    program: str
    round: int
    late_ms: float
    results: int
    p50_ms: float
    p99_ms: float
    p999_ms: float


class Latency:
    """The rounds of each job at each rate, on one broker."""

    def __init__(self, options: argparse.Namespace, cluster: Cluster, folder: Path) -> None:
        self.options = options
        self.cluster = cluster
        self.folder = folder / "latency"
        self.rounds: int = options.rounds or ROUNDS
        self.warm_up_s: int = SMOKE_WARM_UP_S if options.smoke else options.warm_up
        self.seconds: int = SMOKE_SECONDS if options.smoke else options.seconds
        half = [options.peak // 2] if options.peak else []
        self.rates: list[int] = [*options.rates, *half]
        self.jobs = [job for job in options.jobs or JOBS if job in JOBS]
        self.results: list[Latencies] = []

    def run(self) -> dict[str, Any]:
        """Run all rounds and print results; return the results to save."""
        print(
            f"latency: {self.seconds} s each, after a warm-up of {self.warm_up_s} s\n\n"
            f"{'job':12} {'records/s':>9} {'round':>5}  {'program':20} {'p50 ms':>8} {'p99 ms':>8} "
            f"{'p99.9 ms':>8} {'pacer late ms':>13}",
            flush=True,
        )
        programs = [each for each in self.options.programs if each in ENGINES]
        if not self.options.smoke:
            self._warm_up_broker(programs)
        for job in self.jobs:
            for rate in self.rates:
                for number in range(1, self.rounds + 1):
                    for program in programs if number % 2 else reversed(programs):
                        self.one(job, rate, program, number)
        return {
            "rounds": self.rounds,
            "warm_up_s": self.warm_up_s,
            "seconds": self.seconds,
            "peak": self.options.peak,
            "settings": SETTINGS,
            "medians": self._medians(programs),
            "runs": [asdict(result) for result in self.results],
        }

    def _warm_up_broker(self, programs: list[str]) -> None:
        """Run each program once without counting it.

        A new broker compiles its hot code for half a minute, which would slow the first program.
        """
        for program in programs:
            self.one(self.jobs[0], max(self.options.rates), program, 0)
        self.results.clear()

    def one(self, job: str, rate: int, program: str, number: int) -> None:
        """Run a program with a pacer, a receiver, and new topics, group and state."""
        name = f"{self.cluster.prefix}-latency-{job}-{rate}-{program}-{number}"
        run = Run(
            program=program,
            job=job,
            case=f"at {rate:,}",
            round=number,
            application_id=name,
            bootstrap_servers=self.cluster.servers,
            input_topic=f"{name}-input",
            output_topic=f"{name}-output",
            records=ENDLESS,
            folder=self.folder / name,
            settings=SETTINGS,
        )
        for topic in (run.input_topic, run.output_topic):
            create_topic(run.bootstrap_servers, topic, self.options.partitions)
        with started(run) as process:
            wait_for(lambda: self._is_running(run, process), run, "did not start")
            paced, received = self._paced(run, rate)
            close(run, process)
        result = self._latencies(run, rate, paced, received)
        self.cluster.delete_topics(name)
        shutil.rmtree(run.folder)
        self.results.append(result)
        print(
            f"{job:12} {rate:>9,} {number:>5}  {TITLES[program]:20} {result.p50_ms:>8,.0f} "
            f"{result.p99_ms:>8,.0f} {result.p999_ms:>8,.0f} {result.late_ms:>13,.1f}",
            flush=True,
        )

    def _is_running(self, run: Run, process: subprocess.Popen[bytes]) -> bool:
        if process.poll() is not None:
            raise failed(run, f"ended with code {process.returncode}")
        return "running" in marks.read(run.marks)

    def _paced(self, run: Run, rate: int) -> tuple[dict[str, Any], dict[str, dict[str, int]]]:
        """Send and receive; return the statistics of the pacer and the receiver."""
        sent, came = run.folder / "sent.json", run.folder / "came.json"
        servers, seconds = run.bootstrap_servers, self.warm_up_s + self.seconds
        receives = [sys.executable, str(HERE / "receiver.py"), servers, run.output_topic, str(came)]
        paces = [sys.executable, str(HERE / "pacer.py"), servers, run.input_topic]
        paces += [str(rate), str(seconds), str(self.options.keys), str(sent)]
        with subprocess.Popen(receives) as receiver:
            try:
                subprocess.run(paces, check=True, timeout=seconds + DEADLINE_S)
                paced = json.loads(sent.read_text())
                committed = Committed(servers, run.application_id, run.input_topic)
                wait_for(lambda: committed.total() >= paced["sent"], run, "did not keep up")
                receiver.send_signal(signal.SIGTERM)
                receiver.wait(DEADLINE_S)
            except subprocess.SubprocessError as error:
                raise RunFailedError(f"{run.title}, round {run.round}: {error}") from None
            finally:
                receiver.kill()
        return paced, json.loads(came.read_text())

    def _latencies(
        self, run: Run, rate: int, paced: dict[str, Any], received: dict[str, dict[str, int]]
    ) -> Latencies:
        total = sum(sum(counts.values()) for counts in received.values())
        passes = paced["passes"]
        times, more = divmod(paced["sent"], len(passes))
        passed = times * sum(passes) + sum(passes[:more])
        expected = passed if run.job == "stateless" else paced["sent"]
        if total != expected:
            raise RunFailedError(
                f"{TITLES[run.program]}, {run.title}, round {run.round}: {total:,} results were "
                f"received, but {expected:,} were expected"
            )
        first_s = paced["began_ns"] / 1e9 + self.warm_up_s
        counts: Counter[int] = Counter()
        for second, found in received.items():
            # The second in which the warm-up ends does not count either.
            if int(second) > first_s:
                counts.update({int(ms): count for ms, count in found.items()})
        return Latencies(
            job=run.job,
            rate=rate,
            program=run.program,
            round=run.round,
            late_ms=paced["late_ms"],
            results=counts.total(),
            **{name: percentile(counts, quantile) for name, quantile in PERCENTILES.items()},
        )

    def _medians(self, programs: list[str]) -> list[dict[str, Any]]:
        found = []
        print(f"\n{'medians':12} {'records/s':>9} {'program':20} p50, p99, p99.9 ms")
        for job in self.jobs:
            for rate in self.rates:
                for program in programs:
                    combination = (job, rate, program)
                    runs = [
                        one
                        for one in self.results
                        if (one.job, one.rate, one.program) == combination
                    ]
                    entry: dict[str, Any] = {"job": job, "rate": rate, "program": program}
                    for name in PERCENTILES:
                        values = [getattr(one, name) for one in runs]
                        entry[name] = statistics.median(values)
                        entry[f"{name}_spread"] = min(values), max(values)
                    found.append(entry)
                    shown = ", ".join(f"{entry[name]:,.0f}" for name in PERCENTILES)
                    print(f"{job:12} {rate:>9,} {TITLES[program]:20} {shown}")
        return found


def percentile(counts: Counter[int], quantile: float) -> float:
    """Return the latency in milliseconds at a quantile."""
    if not counts:
        raise RunFailedError("No result was received for a record that was due after the warm-up.")
    left = quantile * counts.total()
    for ms in sorted(counts):
        left -= counts[ms]
        if left <= 0:
            return ms
    return max(counts)
