"""Millstream and Kafka Streams side by side: same records, same broker, same run.

    python benchmarks/bench.py                  # 2 M records, 3 rounds, both jobs
    python benchmarks/bench.py --smoke          # a small run that only shows that all works
    python benchmarks/bench.py --baseline       # a third column: plain loops over confluent-kafka

Loads one topic, then runs the programs in turns, one at a time, and prints the rates of every run,
their medians and the ratio of the medians. README.md beside this file says how to read them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import pstats
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import load
from check import check
from confluent_kafka.admin import AdminClient
from measure import Measured, RunFailedError, measure, records_on
from programs import JOBS, PROGRAMS, SETTINGS, TITLES, Run, build_peer

RESULTS = Path(__file__).parent / "results"
SMOKE_RECORDS = 100_000
PROFILE_LINES = 10


class Bench:
    """The rounds on one broker with one loaded topic."""

    def __init__(self, options: argparse.Namespace, bootstrap_servers: str, folder: Path) -> None:
        self.options = options
        self.servers = bootstrap_servers
        self.folder = folder
        self.stamp = f"{time.time_ns() // 1_000_000:x}"
        self.input_topic = f"bench-{self.stamp}-input"
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})
        self.results: list[Measured] = []

    def run(self) -> None:
        """Loads the topic and does every round."""
        records, partitions = self.options.records, self.options.partitions
        began = time.monotonic()
        load.create_topic(self.servers, self.input_topic, partitions)
        self.expected = load.fill(self.servers, self.input_topic, records)
        print(
            f"loaded {records_on(self.servers, self.input_topic):,} records on {partitions} "
            f"partitions in {time.monotonic() - began:.1f} s\n\n"
            f"{'job':10} {'round':>5}  {'program':20} {'records/s':>11} {'steady':>11} "
            f"{'start s':>8} {'run s':>7}  output",
            flush=True,
        )
        for job in self.options.jobs:
            for number in range(1, self.options.rounds + 1):
                programs = list(self.options.programs)
                # Turned round each time, so that nobody always runs on the warmer machine.
                for program in programs if number % 2 else reversed(programs):
                    self.one(program, job, number)

    def one(self, program: str, job: str, number: int, profile: Path | None = None) -> None:
        """One run of one program, on fresh topics, group and state; checks what came out."""
        name = f"bench-{self.stamp}-{job}-{program}-{number}{'-profiled' if profile else ''}"
        run = Run(
            program=program,
            job=job,
            round=number,
            application_id=name,
            bootstrap_servers=self.servers,
            input_topic=self.input_topic,
            output_topic=f"{name}-output",
            records=self.options.records,
            folder=self.folder / name,
            profile=profile,
        )
        load.create_topic(self.servers, run.output_topic, self.options.partitions)
        measured = measure(run)
        wrong = check(job, self.servers, run.output_topic, self.expected)
        self.delete_topics(name)
        shutil.rmtree(run.folder)
        if wrong is not None:
            raise RunFailedError(f"{TITLES[program]}, job {job}, round {number}: {wrong}")
        if profile is None:
            self.results.append(measured)
        print(_line(measured), flush=True)

    def close(self) -> None:
        """Deletes every topic that this bench has left on the broker."""
        self.delete_topics(f"bench-{self.stamp}-")
        # Else it would report the broker's end as a lost connection.
        del self.admin

    def delete_topics(self, prefix: str) -> None:
        """Deletes topics by the start of their names, so an application's internal ones too."""
        names = [
            name for name in self.admin.list_topics(timeout=30).topics if name.startswith(prefix)
        ]
        for deleted in (self.admin.delete_topics(names) if names else {}).values():
            deleted.result(30)

    def profile(self) -> None:
        """Another run of each job of ours under the profiler; prints where the time goes."""
        for job in self.options.jobs:
            file = self.folder / f"{job}.prof"
            self.one("ours", job, 0, profile=file)
            print(f"\n{job}: the {PROFILE_LINES} functions of the stream thread with most own time")
            stats = pstats.Stats(str(file))
            stats.sort_stats(pstats.SortKey.TIME).print_stats(PROFILE_LINES)


def _line(measured: Measured) -> str:
    steady = f"{measured.steady_rate:,.0f}" if measured.steady_rate else "–"
    return (
        f"{measured.job:10} {measured.round:>5}  {TITLES[measured.program]:20} "
        f"{measured.rate:>11,.0f} {steady:>11} "
        f"{measured.start_s:>8.1f} {measured.committed_s:>7.2f}  right"
    )


def medians(results: list[Measured], job: str, program: str) -> tuple[float, float | None] | None:
    """Median rate and median steady rate; None where there is no such run."""
    runs = [result for result in results if (result.job, result.program) == (job, program)]
    if not runs:
        return None
    steady = [result.steady_rate for result in runs if result.steady_rate is not None]
    return (
        statistics.median(result.rate for result in runs),
        statistics.median(steady) if steady else None,
    )


def summary(results: list[Measured], jobs: list[str]) -> dict[str, dict[str, Any]]:
    """Per job: the medians of every program and how they compare with Kafka Streams."""
    table: dict[str, dict[str, Any]] = {}
    for job in jobs:
        table[job] = {}
        java = medians(results, job, "java")
        for program in PROGRAMS:
            own = medians(results, job, program)
            if own is None:
                continue
            entry: dict[str, Any] = {"rate": own[0], "steady_rate": own[1]}
            if java is not None:
                entry["ratio"] = own[0] / java[0]
                entry["steady_ratio"] = own[1] / java[1] if own[1] and java[1] else None
            table[job][program] = entry
    return table


def print_summary(table: dict[str, dict[str, Any]]) -> None:
    """The medians, and their ratios to Kafka Streams."""
    print(
        f"\n{'medians':10} {'program':20} {'records/s':>11} {'ratio':>6} "
        f"{'steady':>11} {'ratio':>6}"
    )
    for job, entries in table.items():
        for program, entry in entries.items():
            cells = [
                f"{job:10} {TITLES[program]:20} {entry['rate']:>11,.0f}",
                f"{entry['ratio']:>6.2f}" if entry.get("ratio") else f"{'–':>6}",
                f"{entry['steady_rate']:>11,.0f}" if entry["steady_rate"] else f"{'–':>11}",
                f"{entry['steady_ratio']:>6.2f}" if entry.get("steady_ratio") else f"{'–':>6}",
            ]
            print(" ".join(cells))
    print()
    for job, entries in table.items():
        ours = entries.get("ours", {})
        if ours.get("ratio"):
            steady = ours["steady_ratio"]
            print(
                f"{job}: Millstream / Kafka Streams = {ours['ratio']:.2f} over whole runs, "
                f"{f'{steady:.2f}' if steady else 'not known'} once both are warm"
            )


def save(bench: Bench, table: dict[str, dict[str, Any]]) -> Path:
    """Writes everything measured to results/<date>.json."""
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now().astimezone()
    path = RESULTS / f"{now:%Y-%m-%d-%H%M}.json"
    content = {
        "at": now.isoformat(timespec="seconds"),
        "machine": {
            "processors": os.cpu_count(),
            "architecture": platform.machine(),
            "python": platform.python_version(),
        },
        "records": bench.options.records,
        "partitions": bench.options.partitions,
        "rounds": bench.options.rounds,
        "settings": SETTINGS,
        "medians": table,
        "runs": [result.to_dict() for result in bench.results],
    }
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


@contextmanager
def broker(given: str | None) -> Iterator[str]:
    """The bootstrap servers: the given ones, or a broker of our own for as long as it is used."""
    if given is not None:
        yield given
        return
    from millstream.testing import EmbeddedKafka

    with EmbeddedKafka() as kafka:
        yield kafka.bootstrap_servers


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--jobs", type=_names(JOBS), default=list(JOBS), metavar="JOB,…")
    parser.add_argument(
        "--programs",
        type=_names(PROGRAMS),
        default=["ours", "java"],
        metavar="PROGRAM,…",
        help=f"of {', '.join(PROGRAMS)} (default: ours,java)",
    )
    parser.add_argument("--baseline", action="store_true", help="run plain Python loops as well")
    parser.add_argument(
        "--smoke", action="store_true", help=f"{SMOKE_RECORDS:,} records, one round: does it work?"
    )
    parser.add_argument(
        "--profile", action="store_true", help="one more run of ours, profiled: where time goes"
    )
    parser.add_argument("--save", action="store_true", help="write the numbers to results/")
    parser.add_argument(
        "--bootstrap-servers", help="a broker that runs already (default: starts its own)"
    )
    options = parser.parse_args()
    if options.smoke:
        options.records, options.rounds = SMOKE_RECORDS, 1
    if options.baseline and "baseline" not in options.programs:
        options.programs.append("baseline")
    return options


def _names(known: tuple[str, ...]) -> Any:
    def names(text: str) -> list[str]:
        chosen = text.split(",")
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return chosen

    return names


def main() -> None:
    options = parse()
    if "java" in options.programs:
        build_peer()
    folder = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    try:
        with (
            broker(options.bootstrap_servers) as servers,
            closing(Bench(options, servers, folder)) as bench,
        ):
            bench.run()
            table = summary(bench.results, options.jobs)
            print_summary(table)
            if options.save:
                print(f"\nsaved to {save(bench, table)}")
            if options.profile:
                bench.profile()
    except RunFailedError as error:
        raise SystemExit(str(error)) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
