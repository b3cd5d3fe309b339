"""How long it takes to the first record, and what a program costs that has nothing to do."""

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

import load
import marks
from broker import Cluster
from growing import Line, Row, with_ratios
from load import Load, create_topic
from measure import Committed, close, failed, session_of, started, wait_for
from programs import TITLES, Run

#: Partitions of the program that does nothing.
PARTITIONS = (1, 200)
SMOKE_PARTITIONS = (5,)
SECONDS, SMOKE_SECONDS = 20.0, 2.0
JOB = "count"

_RECORDS = 10_000
#: Until a program that has worked has come to rest.
_SETTLE_S, _SMOKE_SETTLE_S = 10.0, 1.0
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
#: More than ever come, so that a program does not think that it is done.
_ENDLESS = 10**15
_IN_SESSION = "ours_in_session"


class Waiting:
    """Measures on one broker.

    Args:
        options: of the bench.
        cluster: the broker.
        folder: for the states of programs.
        rounds: how many.
        programs: those that take part.
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
        """Seconds until the first record, which is there before, is decoded."""
        loaded = self._load("start", self._partitions)
        took: dict[str, list[float]] = {}
        programs = ["ours", _IN_SESSION, *(["java"] if self._with_java else [])]
        for number in range(1, self._rounds + 1):
            for program in programs if number % 2 else reversed(programs):
                for what, seconds in self._started(program, loaded, number):
                    took.setdefault(what, []).append(seconds)
        rows = [Row.of(what, self._partitions, each) for what, each in sorted(took.items())]
        return Line("partitions", "seconds", self._rounds, rows)

    def _started(self, program: str, loaded: Load, number: int) -> Iterator[tuple[str, float]]:
        began_ms = marks.now_ms()
        with self._running(program, loaded, f"start-{number}") as (run, _):
            seen = marks.read(run.marks)
        if program != _IN_SESSION:
            yield f"{TITLES[program]}, from its process on", (seen["first"] - began_ms) / 1000
        if "starting" in seen:
            up = "a session that is up" if program == _IN_SESSION else "a session of its own"
            yield f"from start(), {up}", (seen["first"] - seen["starting"]) / 1000

    def idle(self) -> Line:
        """The part of a processor that is used when all has been counted and nothing comes."""
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
                for what, percent in self._percents(process).items():
                    percents.setdefault(what, []).append(percent)
        named = {what: f"{TITLES[program]}, {what}" for what in percents}
        return [Row.of(named[what], loaded.partitions, each) for what, each in percents.items()]

    def _percents(self, process: subprocess.Popen[bytes]) -> dict[str, float]:
        before, began = processor_ticks(process.pid), time.perf_counter()
        time.sleep(SMOKE_SECONDS if self._smoke else SECONDS)
        used, took_s = processor_ticks(process.pid), time.perf_counter() - began
        return {
            what: 100 * (ticks - before[what]) / _TICKS_A_SECOND / took_s
            for what, ticks in used.items()
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
        """A program that has decoded its first record; it is closed afterwards."""
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

            def reads() -> bool:
                if process.poll() is not None:
                    raise failed(run, f"ended with code {process.returncode}")
                return "first" in marks.read(run.marks)

            wait_for(reads, run, "did not read a record")
            yield run, process
            close(run, process)
        self._cluster.delete_topics(name)
        shutil.rmtree(run.folder)


def processor_ticks(leader: int) -> Counter[str]:
    """What the processes of a session have used of processors, by what they do."""
    used: Counter[str] = Counter()
    for pid in session_of(leader):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            # It has just ended.
            continue
        name, _, rest = stat.rpartition(")")
        if pid == leader:
            # Of Kafka Streams it is the only one.
            what = "driver"
        else:
            what = "JVM of Spark" if name.endswith("(java") else "stream thread"
        # The 14th and 15th of all: in user mode, and in the kernel.
        fields = rest.split()
        used[what] += int(fields[11]) + int(fields[12])
    used["all of it"] = used.total()
    return used
