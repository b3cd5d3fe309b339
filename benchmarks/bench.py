"""Millstream and Kafka Streams side by side: same records, same broker, same run.

    python benchmarks/bench.py                     # everything
    python benchmarks/bench.py --only restore      # one part of it
    python benchmarks/bench.py --smoke             # small runs that only show that all works

The parts are throughput, guarantees, latency, restore, failover, queries, async, snapshots,
dataframes, stores, metrics, scale and scaling; each prints its numbers as it goes and medians at
its end. README.md beside this file says how to read them.
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

import environment
import metrics
import scale
import scaling
import stores
from broker import Cluster, cluster
from contestants import install
from dataframes import Cuts
from failover import Failover
from latency import Latency
from load import USERS
from measure import RunFailedError
from programs import JOBS, PROGRAMS, SETTINGS, build_peer
from queries import Queried
from restore import Restoring
from snapshots import Snapshots
from throughput import Throughput, guarantees, plain
from waiting import Waiting

RESULTS = Path(__file__).parent / "results"

#: The parts, in the order in which they run. Those that share no broker come first.
PARTS = (
    *("stores", "metrics", "scale", "scaling", "restore", "failover"),
    *("queries", "throughput", "guarantees", "latency", "async", "snapshots", "dataframes"),
)
_ALONE = {
    "stores": stores.run,
    "metrics": metrics.run,
    "scale": scale.run,
    # Has a broker of its own for some of it, so that the rest is measured without one beside it.
    "scaling": scaling.run,
}
#: Those in which Kafka Streams takes part.
_BESIDE_STREAMS = ("restore", "failover", "throughput", "guarantees", "latency")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--only",
        type=_names(PARTS),
        default=list(PARTS),
        metavar="PART,…",
        help=f"of {', '.join(PARTS)} (default: all)",
    )
    parser.add_argument("--records", type=int, help="how many (default: each part has its own)")
    parser.add_argument("--rounds", type=int, help="how many (default: each part has its own)")
    parser.add_argument("--partitions", type=int, default=4, help="of the topics of throughput")
    parser.add_argument(
        "--jobs",
        type=_names(JOBS),
        metavar="JOB,…",
        help=f"workloads, of {', '.join(JOBS)} (default: all, of guarantees three)",
    )
    parser.add_argument(
        "--keys", type=int, default=USERS, help=f"users in the load (default: {USERS:,})"
    )
    parser.add_argument(
        "--programs",
        type=_names(PROGRAMS),
        metavar="PROGRAM,…",
        help=f"of {', '.join(PROGRAMS)} (default: ours,java, of scaling ours)",
    )
    parser.add_argument(
        "--baseline", action="store_true", help="throughput of plain Python loops as well"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="few records, one round: does it all work?"
    )
    parser.add_argument(
        "--profile", action="store_true", help="one more run of ours, profiled: where time goes"
    )
    parser.add_argument("--save", action="store_true", help="write the numbers to results/")
    parser.add_argument(
        "--bootstrap-servers", help="a broker that runs already (default: starts its own)"
    )
    _add_options_of_parts(parser)
    options = parser.parse_args()
    #: The programs of the part that is about us alone, unless others are asked for.
    options.beside = options.programs or ["ours"]
    options.programs = options.programs or ["ours", "java"]
    if options.smoke:
        options.rounds = 1
    if options.baseline and "baseline" not in options.programs:
        options.programs.append("baseline")
    return options


def _add_options_of_parts(parser: argparse.ArgumentParser) -> None:
    """Those that only one part looks at."""
    parser.add_argument(
        "--commit-intervals",
        type=_numbers,
        default=[100, 1_000],
        metavar="MS,…",
        help="of the part guarantees (default: 100,1000)",
    )
    parser.add_argument(
        "--rates",
        type=_numbers,
        default=[1_000, 10_000],
        metavar="RATE,…",
        help="records per second of the part latency (default: 1000,10000)",
    )
    parser.add_argument("--peak", type=int, help="records per second; latency at half of it, too")
    parser.add_argument(
        "--warm-up", type=int, default=30, help="seconds left out of latency (default: 30)"
    )
    parser.add_argument(
        "--seconds", type=int, default=60, help="of which latency is measured (default: 60)"
    )
    parser.add_argument(
        "--lines",
        type=_names(scaling.LINES),
        default=list(scaling.LINES),
        metavar="LINE,…",
        help=f"of the part scaling, of {', '.join(scaling.LINES)} (default: all)",
    )
    parser.add_argument(
        "--key-counts",
        type=_numbers,
        metavar="KEYS,…",
        help="of the part scaling (default: 10000,100000,1000000)",
    )
    parser.add_argument(
        "--counts",
        type=_numbers,
        metavar="COUNT,…",
        help="of tasks and partitions of the part scaling (default: 1,10,50,200)",
    )
    parser.add_argument(
        "--restore-partitions", type=int, default=1, help="of the changelog (default: 1)"
    )
    parser.add_argument(
        "--order",
        choices=["random", "ascending"],
        default="random",
        help="of the keys in the changelog that is restored (default: random)",
    )


def _names(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        chosen = text.split(",")
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return chosen

    return names


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def run(part: str, options: argparse.Namespace, on: Cluster, folder: Path) -> dict[str, Any]:
    """One part that needs a broker; what is to be saved of it."""
    if part == "restore":
        return Restoring(options, on, folder).run()
    if part == "failover":
        return Failover(options, on, folder).run()
    if part == "queries":
        return Queried(options, on, folder).run()
    if part == "snapshots":
        return Snapshots(options, on).run()
    if part == "dataframes":
        return Cuts(options, on, folder).run()
    if part == "latency":
        return Latency(options, on, folder).run()
    if part == "async":
        return Waiting(options, on, folder).run()
    cases = guarantees(options) if part == "guarantees" else plain(options)
    return Throughput(options, on, folder / part, cases).run()


def save(part: str, options: argparse.Namespace, load: float, measured: dict[str, Any]) -> Path:
    """Writes what was measured to results/<date>-<part>.json, or with a number behind that."""
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
    # By way of an exception, so that the programs that run do not outlive the bench.
    raise SystemExit(128 + signal.SIGTERM)


def main() -> None:
    options = parse()
    signal.signal(signal.SIGTERM, _terminated)
    on_broker = [part for part in PARTS if part in options.only and part not in _ALONE]
    beside_streams = "java" in options.programs and any(
        each in _BESIDE_STREAMS for each in on_broker
    )
    if beside_streams or ("scaling" in options.only and "java" in options.beside):
        build_peer()
    for program in options.programs:
        install(program)
    # Others who use the processors spoil the numbers, also those of one run against each other.
    load = os.getloadavg()[0]
    print(f"load of this machine before the first run: {load:.1f}\n")
    folder = Path(tempfile.mkdtemp(prefix="millstream-bench-"))

    def done(part: str, measured: dict[str, Any]) -> None:
        if options.save:
            print(f"\nsaved to {save(part, options, load, measured)}")

    try:
        for part, run_alone in _ALONE.items():
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
