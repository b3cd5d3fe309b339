"""Run many histories in parallel and print a summary."""

from __future__ import annotations

import logging
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial

from simulation.history import History, Result


def silence() -> logging.Logger:
    engine = logging.getLogger("millstream")
    engine.propagate = False
    engine.addHandler(logging.NullHandler())
    engine.setLevel(logging.CRITICAL + 1)
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
    return engine


class _TraceHandler(logging.Handler):
    def __init__(self, history: History) -> None:
        super().__init__()
        self._scheduler = history.scheduler

    def emit(self, record: logging.LogRecord) -> None:
        self._scheduler.log(f"    {self._scheduler.current.name}: {record.getMessage()}")


def run_and_print(seed: int, *, with_log: bool, exactly_once: bool) -> int:
    engine = silence()
    history = History(seed, keep_trace=True, exactly_once=exactly_once)
    if with_log:
        engine.setLevel(logging.INFO)
        engine.addHandler(_TraceHandler(history))
    result = history.run()
    _print("\n".join(result.trace))
    _print(f"seed {seed}: {result.failure or 'no failure'}")
    return 1 if result.failure else 0


def run_one(seed: int, *, exactly_once: bool = False) -> Result:
    return History(seed, exactly_once=exactly_once).run()


def _results(
    first: int, count: int, jobs: int, seconds: float | None, *, exactly_once: bool
) -> Iterator[Result]:
    run = partial(run_one, exactly_once=exactly_once)
    ends = None if seconds is None else time.monotonic() + seconds
    seeds = range(first, first + count)
    if jobs == 1:
        silence()
        for seed in seeds:
            if ends is not None and time.monotonic() > ends:
                return
            yield run(seed)
        return
    with multiprocessing.get_context("forkserver").Pool(jobs, silence) as pool:
        for result in pool.imap(run, seeds, chunksize=4):
            yield result
            if ends is not None and time.monotonic() > ends:
                return


def run_many(
    first: int, count: int, jobs: int, seconds: float | None, *, exactly_once: bool
) -> int:
    began = time.monotonic()
    kinds: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    failed: list[Result] = []
    longest_ms, slowest = 0, 0
    for result in _results(first, count, jobs, seconds, exactly_once=exactly_once):
        totals["histories"] += 1
        kinds.update(result.faults)
        for name in ("records", "crashes", "rebalances", "commits", "repeated", "overwritten"):
            totals[name] += getattr(result, name)
        totals["simulated s"] += result.simulated_ms // 1000
        if result.settle_ms > longest_ms:
            longest_ms, slowest = result.settle_ms, result.seed
        if result.failure is not None:
            failed.append(result)
            _print(f"seed {result.seed} FAILED {result.failure.splitlines()[0]}")
    for result in failed[:1]:
        _print(f"--- trace of seed {result.seed}: {result.failure}")
    for name, number in totals.items():
        _print(f"{name:>20} {number}")
    _print(f"{'lost':>20} {0 if not failed else '?'}")
    _print(f"{'longest settle time':>20} {longest_ms / 1000:.1f} s (seed {slowest})")
    for kind, number in sorted(kinds.items()):
        _print(f"{'fault: ' + kind:>20} {number}")
    _print(f"{'failed':>20} {len(failed)} {[result.seed for result in failed][:20]}")
    _print(f"{'took':>20} {time.monotonic() - began:.1f} s")
    return 1 if failed or not totals["histories"] else 0


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
