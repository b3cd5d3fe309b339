"""Runs histories: `PYTHONPATH=tests python -m simulation --count 1000 --jobs 2`."""

from __future__ import annotations

import argparse
import os
import sys

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from simulation.running import run_many, tell_one


def main(arguments: list[str]) -> int:
    """Run what is asked for; 0 if no history failed."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000, help="how many histories")
    parser.add_argument("--first", type=int, default=1, help="the seed of the first")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--seconds", type=float, help="begin no history after so long")
    parser.add_argument("--seed", type=int, help="run one history and print its whole story")
    parser.add_argument("--log", action="store_true", help="with --seed: the engine's log as well")
    parser.add_argument(
        "--guarantee",
        choices=(AT_LEAST_ONCE, EXACTLY_ONCE_V2),
        default=AT_LEAST_ONCE,
        help="the processing guarantee",
    )
    asked = parser.parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is part of a history.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "simulation", *arguments],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    exactly_once = asked.guarantee == EXACTLY_ONCE_V2
    if asked.seed is not None:
        return tell_one(asked.seed, with_log=asked.log, exactly_once=exactly_once)
    return run_many(asked.first, asked.count, asked.jobs, asked.seconds, exactly_once=exactly_once)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
