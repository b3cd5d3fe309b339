"""Compare Millstream with Kafka Streams: same records, same broker, same run.

    python benchmarks/bench.py                     # everything
    python benchmarks/bench.py --only restore      # one part
    python benchmarks/bench.py --smoke             # small runs, to check that everything works

The parts are throughput, guarantees, latency, restore, failover, queries, async, snapshots,
dataframes, stores, metrics, scale and scaling. Each part prints its numbers during the run, and
medians at the end. README.md in this folder explains them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

from environments import install
from harness import environment
from harness.broker import Cluster, cluster
from harness.load import USERS
from harness.measure import RunFailedError
from parts import metrics, scale, scaling, stores
from parts.dataframes import DataFrameRounds
from parts.failover import FailoverRounds
from parts.latency import Latency
from parts.queries import QueryRounds
from parts.restore import RestoreRounds
from parts.snapshots import Snapshots
from parts.throughput import Throughput, guarantees, plain
from parts.waiting import AsyncRounds
from programs import JOBS, PROGRAMS, SETTINGS, build_peer

RESULTS = Path(__file__).parent / "results"

#: The parts, in the order in which they run. Parts without a shared broker come first.
PARTS = (
    *("stores", "metrics", "scale", "scaling", "restore", "failover"),
    *("queries", "throughput", "guarantees", "latency", "async", "snapshots", "dataframes"),
)
_WITHOUT_BROKER = {
    "stores": stores.run,
    "metrics": metrics.run,
    "scale": scale.run,
    # Starts its own broker for some lines, so that the other lines are measured without a broker.
    "scaling": scaling.run,
}
#: The parts that also measure Kafka Streams.
_WITH_KAFKA_STREAMS = ("restore", "failover", "throughput", "guarantees", "latency")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--only",
        type=_names(PARTS),
        default=list(PARTS),
        metavar="PART,…",
        help=f"parts to run, from {', '.join(PARTS)} (default: all)",
    )
    parser.add_argument(
        "--records", type=int, help="number of records (default: depends on the part)"
    )
    parser.add_argument(
        "--rounds", type=int, help="number of rounds (default: depends on the part)"
    )
    parser.add_argument("--partitions", type=int, default=4, help="partitions of the topics")
    parser.add_argument(
        "--jobs",
        type=_names(JOBS),
        metavar="JOB,…",
        help=f"workloads, from {', '.join(JOBS)} (default: all; for guarantees, three)",
    )
    parser.add_argument(
        "--keys", type=int, default=USERS, help=f"users in the load (default: {USERS:,})"
    )
    parser.add_argument(
        "--programs",
        type=_names(PROGRAMS),
        metavar="PROGRAM,…",
        help=f"from {', '.join(PROGRAMS)} (default: ours,java; for scaling, ours)",
    )
    parser.add_argument(
        "--baseline", action="store_true", help="also measure the throughput of plain Python loops"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="few records, one round: check that everything works"
    )
    parser.add_argument("--profile", action="store_true", help="profile another run of Millstream")
    parser.add_argument("--save", action="store_true", help="write the numbers to results/")
    parser.add_argument("--bootstrap-servers", help="an existing broker (default: start one)")
    _add_options_of_parts(parser)
    options = parser.parse_args()
    #: The programs of the part scaling, which only measures Millstream by default.
    options.scaling_programs = options.programs or ["ours"]
    options.programs = options.programs or ["ours", "java"]
    if options.smoke:
        options.rounds = 1
    if options.baseline and "baseline" not in options.programs:
        options.programs.append("baseline")
    return options


def _add_options_of_parts(parser: argparse.ArgumentParser) -> None:
    """Add the options for individual parts."""
    parser.add_argument(
        "--commit-intervals",
        type=_numbers,
        default=[100, 1_000],
        metavar="MS,…",
        help="commit intervals of the part guarantees (default: 100,1000)",
    )
    parser.add_argument(
        "--rates",
        type=_numbers,
        default=[1_000, 10_000],
        metavar="RATE,…",
        help="records per second in the part latency (default: 1000,10000)",
    )
    parser.add_argument("--peak", type=int, help="also measure latency at half of this rate")
    parser.add_argument(
        "--warm-up", type=int, default=30, help="seconds of warm-up in latency (default: 30)"
    )
    parser.add_argument(
        "--seconds", type=int, default=60, help="measured seconds in latency (default: 60)"
    )
    parser.add_argument(
        "--lines",
        type=_names(scaling.LINES),
        default=list(scaling.LINES),
        metavar="LINE,…",
        help=f"lines of the part scaling, from {', '.join(scaling.LINES)} (default: all)",
    )
    parser.add_argument(
        "--key-counts",
        type=_numbers,
        metavar="KEYS,…",
        help="numbers of keys in the part scaling (default: 10000,100000,1000000)",
    )
    parser.add_argument(
        "--counts",
        type=_numbers,
        metavar="COUNT,…",
        help="numbers of tasks and partitions in the part scaling (default: 1,10,50,200)",
    )
    parser.add_argument(
        "--restore-partitions", type=int, default=1, help="partitions of the changelog (default: 1)"
    )
    parser.add_argument(
        "--order",
        choices=["random", "ascending"],
        default="random",
        help="order of the keys in the changelog that is restored (default: random)",
    )


def _names(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        chosen = text.split(",")
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return chosen

    return names


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def run(part: str, options: argparse.Namespace, broker: Cluster, folder: Path) -> dict[str, Any]:
    """Run a part that requires a broker; return the results to save."""
    if part == "restore":
        return RestoreRounds(options, broker, folder).run()
    if part == "failover":
        return FailoverRounds(options, broker, folder).run()
    if part == "queries":
        return QueryRounds(options, broker, folder).run()
    if part == "snapshots":
        return Snapshots(options, broker).run()
    if part == "dataframes":
        return DataFrameRounds(options, broker, folder).run()
    if part == "latency":
        return Latency(options, broker, folder).run()
    if part == "async":
        return AsyncRounds(options, broker, folder).run()
    cases = guarantees(options) if part == "guarantees" else plain(options)
    return Throughput(options, broker, folder / part, cases).run()


def save(part: str, options: argparse.Namespace, load: float, measured: dict[str, Any]) -> Path:
    """Write results to results/<date>-<part>.json, with a number if the file exists."""
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now().astimezone()
    names = (f"{now:%Y-%m-%d}-{part}{end}.json" for end in ("", *(f"-{n}" for n in range(2, 100))))
    path = next(RESULTS / name for name in names if not (RESULTS / name).exists())
    content = {
        "part": part,
        "at": now.isoformat(timespec="seconds"),
        **environment.described(),
        "load_before": load,
        "partitions": options.partitions,
        "settings": SETTINGS,
        "measured": measured,
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    # Raise an exception, so that running programs do not outlive the benchmark.
    raise SystemExit(128 + signal.SIGTERM)


def main() -> None:
    options = parse()
    signal.signal(signal.SIGTERM, _terminated)
    on_broker = [part for part in PARTS if part in options.only and part not in _WITHOUT_BROKER]
    beside_streams = "java" in options.programs and any(
        each in _WITH_KAFKA_STREAMS for each in on_broker
    )
    if beside_streams or ("scaling" in options.only and "java" in options.scaling_programs):
        build_peer()
    for program in options.programs:
        install(program)
    # Other load on the processors distorts all numbers, including ratios within a run.
    load = os.getloadavg()[0]
    print(f"load of this machine before the first run: {load:.1f}\n")
    folder = Path(tempfile.mkdtemp(prefix="millstream-bench-"))

    def done(part: str, measured: dict[str, Any]) -> None:
        if options.save:
            print(f"\nsaved to {save(part, options, load, measured)}")

    try:
        for part, run_alone in _WITHOUT_BROKER.items():
            if part in options.only:
                done(part, run_alone(options, folder / part))
        if on_broker:
            with cluster(options.bootstrap_servers) as on:
                for part in on_broker:
                    print()
                    done(part, run(part, options, on, folder))
    except RunFailedError as error:
        raise SystemExit(str(error)) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
