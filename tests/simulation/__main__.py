"""Runs histories: `PYTHONPATH=tests python -m simulation --count 1000 --jobs 2`."""

from __future__ import annotations

import argparse
import os
import sys

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from simulation.running import run_and_print, run_many


def main(arguments: list[str]) -> int:
    """Run the histories that the arguments select. Return 0 if none failed."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000, help="number of histories")
    parser.add_argument("--first", type=int, default=1, help="seed of the first history")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of processes")
    parser.add_argument("--seconds", type=float, help="start no history after this time")
    parser.add_argument("--seed", type=int, help="run one history and print its trace")
    parser.add_argument(
        "--log", action="store_true", help="with --seed: print the engine's log too"
    )
    parser.add_argument(
        "--guarantee",
        choices=(AT_LEAST_ONCE, EXACTLY_ONCE_V2),
        default=AT_LEAST_ONCE,
        help="the processing guarantee",
    )
    options = parser.parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The iteration order of sets is part of a history.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "simulation", *arguments],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    exactly_once = options.guarantee == EXACTLY_ONCE_V2
    if options.seed is not None:
        return run_and_print(options.seed, with_log=options.log, exactly_once=exactly_once)
    return run_many(
        options.first, options.count, options.jobs, options.seconds, exactly_once=exactly_once
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
