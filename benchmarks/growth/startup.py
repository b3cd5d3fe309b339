"""The time until the first record, and the cost of an idle program."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import marks
from harness import load
from harness.broker import Cluster
from harness.load import Load, create_topic
from harness.measure import Committed, close, failed, session_of, started, wait_for
from programs import TITLES, Run

from growth.lines import Line, Row, with_ratios

#: Partitions of the idle program.
PARTITIONS = (1, 200)
SMOKE_PARTITIONS = (5,)
SECONDS, SMOKE_SECONDS = 20.0, 2.0
JOB = "count"

_RECORDS = 10_000
#: The time after which a program is idle.
_SETTLE_S, _SMOKE_SETTLE_S = 10.0, 1.0
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
#: More records than are ever written, so that the program never reports the last record.
_ENDLESS = 10**15
_IN_SESSION = "ours_in_session"


class StartupAndIdle:
    """Measures startup and idle programs on one broker.

    Args:
        options: the options of `bench.py`.
        folder: the folder for the state of the programs.
        programs: the programs to measure.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        cluster: Cluster,
        folder: Path,
        *,
        rounds: int,
        programs: Sequence[str],
    ) -> None:
        self._smoke: bool = options.smoke
        self._partitions: int = options.partitions
        self._cluster = cluster
        self._folder = folder
        self._rounds = rounds
        self._with_java = "java" in programs

    def start(self) -> Line:
        """Measure the seconds until the first record is decoded.

        The record was written before.
        """
        loaded = self._load("start", self._partitions)
        took: dict[str, list[float]] = {}
        programs = ["ours", _IN_SESSION, *(["java"] if self._with_java else [])]
        for number in range(1, self._rounds + 1):
            for program in programs if number % 2 else reversed(programs):
                for title, seconds in self._started(program, loaded, number):
                    took.setdefault(title, []).append(seconds)
        rows = [Row.of(title, self._partitions, each) for title, each in sorted(took.items())]
        return Line("partitions", "seconds", self._rounds, rows)

    def _started(self, program: str, loaded: Load, number: int) -> Iterator[tuple[str, float]]:
        began_ms = marks.now_ms()
        with self._running(program, loaded, f"start-{number}") as (run, _):
            seen = marks.read(run.marks)
        if program != _IN_SESSION:
            yield f"{TITLES[program]}, from process start", (seen["first"] - began_ms) / 1000
        if "starting" in seen:
            session = "existing session" if program == _IN_SESSION else "new session"
            yield f"from start(), {session}", (seen["first"] - seen["starting"]) / 1000

    def idle(self) -> Line:
        """Measure the CPU usage in percent after all records have been counted."""
        rows: list[Row] = []
        for partitions in SMOKE_PARTITIONS if self._smoke else PARTITIONS:
            loaded = self._load(f"idle-{partitions}", partitions)
            for program in ["ours", *(["java"] if self._with_java else [])]:
                rows += self._idle(program, loaded)
            self._cluster.delete_topics(loaded.topic)
        return Line("partitions", "% of a core", self._rounds, with_ratios(rows))

    def _idle(self, program: str, loaded: Load) -> list[Row]:
        with self._running(program, loaded, f"idle-{loaded.partitions}") as (run, process):
            committed = Committed(run.bootstrap_servers, run.application_id, run.input_topic)
            wait_for(lambda: committed.total() >= loaded.records, run, "did not count everything")
            time.sleep(_SMOKE_SETTLE_S if self._smoke else _SETTLE_S)
            percents: dict[str, list[float]] = {}
            for _ in range(self._rounds):
                for role, percent in self._percents(process).items():
                    percents.setdefault(role, []).append(percent)
        named = {role: f"{TITLES[program]}, {role}" for role in percents}
        return [Row.of(named[role], loaded.partitions, each) for role, each in percents.items()]

    def _percents(self, process: subprocess.Popen[bytes]) -> dict[str, float]:
        before, began = processor_ticks(process.pid), time.perf_counter()
        time.sleep(SMOKE_SECONDS if self._smoke else SECONDS)
        used, took_s = processor_ticks(process.pid), time.perf_counter() - began
        return {
            role: 100 * (ticks - before[role]) / _TICKS_PER_SECOND / took_s
            for role, ticks in used.items()
        }

    def _load(self, name: str, partitions: int) -> Load:
        topic = f"{self._cluster.prefix}-growing-{name}"
        loaded = Load(self._cluster.servers, topic, _RECORDS, partitions=partitions)
        load.fill(loaded)
        return loaded

    @contextmanager
    def _running(
        self, program: str, loaded: Load, name: str
    ) -> Iterator[tuple[Run, subprocess.Popen[bytes]]]:
        """Yield a program that has decoded its first record, and close it at the end."""
        name = f"{self._cluster.prefix}-growing-{name}-{program.replace('_', '-')}"
        run = Run(
            program=program,
            job=JOB,
            round=1,
            application_id=name,
            bootstrap_servers=loaded.servers,
            input_topic=loaded.topic,
            output_topic=f"{name}-output",
            records=_ENDLESS,
            folder=self._folder / name,
        )
        create_topic(run.bootstrap_servers, run.output_topic, loaded.partitions)
        with started(run) as process:

            def has_decoded() -> bool:
                if process.poll() is not None:
                    raise failed(run, f"ended with code {process.returncode}")
                return "first" in marks.read(run.marks)

            wait_for(has_decoded, run, "did not decode a record")
            yield run, process
            close(run, process)
        self._cluster.delete_topics(name)
        shutil.rmtree(run.folder)


def processor_ticks(leader: int) -> Counter[str]:
    """Return the CPU ticks of the processes of a session, by role."""
    used: Counter[str] = Counter()
    for pid in session_of(leader):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            # The process has just ended.
            continue
        name, _, rest = stat.rpartition(")")
        if pid == leader:
            # In Kafka Streams, this is the only process.
            role = "driver"
        else:
            role = "JVM of Spark" if name.endswith("(java") else "stream thread"
        # Fields 14 and 15 of the whole line: user and kernel mode.
        fields = rest.split()
        used[role] += int(fields[11]) + int(fields[12])
    used["total"] = used.total()
    return used
