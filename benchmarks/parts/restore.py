"""The speed of restoring a store in RocksDB from an existing changelog.

The programs run the job `count` with an empty input and an empty state directory, so they only
restore. The clock starts when the restore listener is notified of the start of the first partition,
and stops at the end of the last one. Afterwards, some keys are counted again to verify the restored
counts.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import struct
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import marks
from harness.broker import Cluster
from harness.check import records_of
from harness.load import Writer, create_topic
from harness.measure import RunFailedError, close, failed, started, wait_for
from programs import ENGINES, TITLES, Run

RECORDS = 2_000_000
ROUNDS = 3
SMOKE_RECORDS = 50_000
PROBES = 1_000
SEED = 7

_RESTORE_DEADLINE_S = 300.0
_PROBE_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The times of a run.

    Attributes:
        start_s: the time from the start of the process to the start of the restoration.
        took_s: the time of the restoration.
        rate: records per second.
        megabytes_rate: 10^6 bytes of keys and values per second, as in the changelog.
    """

    program: str
    round: int
    records: int
    start_s: float
    took_s: float
    rate: float
    megabytes_rate: float


class RestoreRounds:
    """The rounds on one broker. Each run has its own changelog with the same records."""

    def __init__(self, options: argparse.Namespace, cluster: Cluster, folder: Path) -> None:
        self.options = options
        self.records: int = options.records or (SMOKE_RECORDS if options.smoke else RECORDS)
        self.rounds: int = options.rounds or ROUNDS
        self.partitions: int = options.restore_partitions
        self.cluster = cluster
        self.folder = folder
        self.results: list[RestoreResult] = []

    def run(self) -> dict[str, Any]:
        """Run all rounds and print results; return the results to save."""
        print(
            f"restore: {self.records:,} records in {self.options.order} order on "
            f"{self.partitions} partitions\n\n"
            f"{'round':>5}  {'program':20} {'records/s':>11} {'MB/s':>7} {'start s':>8} "
            f"{'took s':>7}  content",
            flush=True,
        )
        for number in range(1, self.rounds + 1):
            programs = [each for each in self.options.programs if each in ENGINES]
            for program in programs if number % 2 else reversed(programs):
                self.one(program, number)
        medians = self._medians()
        return {
            "records": self.records,
            "rounds": self.rounds,
            "partitions": self.partitions,
            "order": self.options.order,
            "medians": medians,
            "runs": [asdict(result) for result in self.results],
        }

    def one(self, program: str, number: int) -> None:
        """Run a program with new topics, group and state, and verify the restored counts."""
        name = f"{self.cluster.prefix}-restore-{program}-{number}"
        run = Run(
            program=program,
            job="count",
            round=number,
            application_id=name,
            bootstrap_servers=self.cluster.servers,
            input_topic=f"{name}-input",
            output_topic=f"{name}-output",
            records=PROBES,
            folder=self.folder / name,
            # A short interval, so that the counts of the probes are written soon.
            settings={"commit.interval.ms": "100"},
        )
        changelog = f"{name}-counts-changelog"
        for topic in (run.input_topic, run.output_topic):
            create_topic(run.bootstrap_servers, topic, self.partitions)
        create_topic(run.bootstrap_servers, changelog, self.partitions, "compact")
        size = self._fill(changelog)
        started_ms = marks.now_ms()
        with started(run) as process:
            began_ms, ended_ms = self._restored(run, process)
            self._probe(run)
            close(run, process)
        self.cluster.delete_topics(name)
        shutil.rmtree(run.folder)
        took_s = max(1, ended_ms - began_ms) / 1000
        result = RestoreResult(
            program=program,
            round=number,
            records=self.records,
            start_s=(began_ms - started_ms) / 1000,
            took_s=took_s,
            rate=self.records / took_s,
            megabytes_rate=size / took_s / 1e6,
        )
        self.results.append(result)
        print(
            f"{number:>5}  {TITLES[program]:20} {result.rate:>11,.0f} "
            f"{result.megabytes_rate:>7.1f} {result.start_s:>8.1f} {took_s:>7.2f}  correct",
            flush=True,
        )

    def _fill(self, changelog: str) -> int:
        """Write a count for each key; return the size of keys and values in bytes."""
        numbers = list(range(self.records))
        if self.options.order == "random":
            random.Random(SEED).shuffle(numbers)
        # Uncompressed, like the changelogs that the programs write.
        writer = Writer(self.cluster.servers, changelog, compression="none")
        pack = struct.Struct(">q").pack
        for number in numbers:
            writer.send(_key(number), pack(_count(number)))
        writer.flush()
        return self.records * (len(_key(0)) + 8)

    def _restored(self, run: Run, process: subprocess.Popen[bytes]) -> tuple[int, int]:
        """Wait until all partitions are restored; return first start and last end."""

        def done() -> tuple[int, int] | None:
            seen = marks.read(run.marks)
            began = [at for mark, at in seen.items() if mark.startswith("restoring ")]
            ended = {mark: at for mark, at in seen.items() if mark.startswith("restored ")}
            if len(ended) == self.partitions:
                total = sum(int(mark.split()[2]) for mark in ended)
                if total != self.records:
                    raise failed(run, f"restored {total:,} of {self.records:,} records")
                return min(began), max(ended.values())
            if process.poll() is not None:
                raise failed(run, f"ended with code {process.returncode} while restoring")
            return None

        return wait_for(done, run, "did not restore in time", _RESTORE_DEADLINE_S)

    def _probe(self, run: Run) -> None:
        """Count some keys again, and verify the results.

        The results depend on the restored counts.
        """
        numbers = random.Random(SEED).sample(range(self.records), PROBES)
        expected = {_key(number): _count(number) + 1 for number in numbers}
        writer = Writer(run.bootstrap_servers, run.input_topic)
        for key in expected:
            writer.send(key, b"again")
        writer.flush()
        deadline = time.monotonic() + _PROBE_DEADLINE_S
        counts: dict[bytes, int] = {}
        while counts != expected:
            if time.monotonic() > deadline:
                wrong = sum(counts.get(key) != count for key, count in expected.items())
                raise RunFailedError(
                    f"{TITLES[run.program]}, restore, round {run.round}: {wrong:,} of "
                    f"{len(expected):,} restored counts are wrong"
                )
            found = records_of(run.bootstrap_servers, run.output_topic)
            counts = {key: struct.unpack(">q", value)[0] for key, value in found}

    def _medians(self) -> dict[str, dict[str, float]]:
        table: dict[str, dict[str, float]] = {}
        for program in dict.fromkeys(result.program for result in self.results):
            runs = [result for result in self.results if result.program == program]
            table[program] = {
                "rate": statistics.median(result.rate for result in runs),
                "megabytes_rate": statistics.median(result.megabytes_rate for result in runs),
            }
        print(f"\n{'medians':7}  {'program':20} {'records/s':>9} {'MB/s':>7} {'ratio':>6}")
        for program, entry in table.items():
            if "java" in table:
                entry["ratio"] = entry["rate"] / table["java"]["rate"]
            ratio = f"{entry['ratio']:.2f}" if "ratio" in entry else "–"
            print(
                f"{'':7}  {TITLES[program]:20} {entry['rate']:>9,.0f} "
                f"{entry['megabytes_rate']:>7.1f} {ratio:>6}"
            )
        return table


def _key(number: int) -> bytes:
    return b"user-%08d" % number


def _count(number: int) -> int:
    return 1 + number % 1_000
