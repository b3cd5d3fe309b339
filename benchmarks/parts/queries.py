"""The cost of queries for the job `count`.

Three variants run in turns: with the threads but without queries, with a thousand queries per
second through a view, and with a thousand queries per second over HTTP.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import query_load
from harness.broker import Cluster
from harness.measure import RunFailedError

from parts.throughput import Case, Throughput

RATE = 1_000
ROUNDS = 4
#: Enough for about ten seconds, so that the excluded first second has little weight.
RECORDS = 6_000_000
_JOB = "count"
_ALONE, _BY_VIEW, _OVER_HTTP = "alone", "by view", "over HTTP"
_WARM_UP = "warm-up"
_VARIANTS = (_ALONE, _BY_VIEW, _OVER_HTTP)


class QueryRounds:
    """The rounds, on one broker with one input topic."""

    def __init__(self, options: argparse.Namespace, cluster: Cluster, folder: Path) -> None:
        self._rounds: int = options.rounds or ROUNDS
        #: After the load has been written, the broker is busy with other work for a minute.
        self._warm_ups = 0 if options.smoke else 3
        self._folder = folder / "queries"
        self._folder.mkdir()
        self._runs = Throughput(options, cluster, self._folder, [])
        if not (options.records or options.smoke):
            self._runs.records = RECORDS
        self._results: dict[str, list[query_load.QueryResults]] = {_BY_VIEW: [], _OVER_HTTP: []}

    def run(self) -> dict[str, Any]:
        """Run all rounds and print results; return the results to save."""
        runs = self._runs
        runs.load_for(_JOB)
        print(f"job {_JOB}, {runs.records:,} records, {RATE:,} queries/s of random keys")
        for number in range(1, self._warm_ups + 1):
            self._runs.one("ours", Case(_JOB, _WARM_UP), number)
        for number in range(1, self._rounds + 1):
            for variant in _VARIANTS if number % 2 else reversed(_VARIANTS):
                self._run_once(number, variant)
        return self._summary()

    def _run_once(self, number: int, variant: str) -> None:
        file = self._folder / f"queries-{variant}-{number}.json"
        settings = {query_load.RATE: str(RATE), query_load.FILE: str(file)}
        if variant != _BY_VIEW:
            settings[query_load.SILENT if variant == _ALONE else query_load.OVER_HTTP] = "true"
        self._runs.one("ours", Case(_JOB, variant, settings, "queried"), number)
        if variant == _ALONE:
            return
        queried = query_load.read(file)
        if not queried.found:
            raise RunFailedError(f"Round {number}: no query found a key; {queried.messages}.")
        self._results[variant].append(queried)
        print(_line(queried), flush=True)

    def _summary(self) -> dict[str, Any]:
        rates = {
            variant: [
                # Until the last record is decoded; the rest depends on the time of closing.
                result.records / result.decoded_s
                for result in self._runs.results
                if result.job == f"{_JOB} {variant}" and result.decoded_s
            ]
            for variant in _VARIANTS
        }
        print(f"\nmedians: {statistics.median(rates[_ALONE]):,.0f} records/s {_ALONE}")
        return {
            "rates": rates,
            "queries": {variant: self._summary_of(variant, rates) for variant in self._results},
            "runs": [result.to_dict() for result in self._runs.results],
        }

    def _summary_of(self, variant: str, rates: Mapping[str, Sequence[float]]) -> dict[str, Any]:
        # By round, because the load of the machine varies.
        ratios = [
            queried / alone for queried, alone in zip(rates[variant], rates[_ALONE], strict=True)
        ]
        ratio = statistics.median(ratios)
        print(
            f"queries {variant}: {statistics.median(rates[variant]):,.0f} records/s, "
            f"ratio {ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f} in a round)"
        )
        every = query_load.QueryResults.all_of(self._results[variant])
        print(_line(every))
        return {
            "ratio": ratio,
            "ratios": ratios,
            "queries": len(every.latencies_ms),
            "failed": dict(every.failed),
            "messages": dict(every.messages),
            "p50_ms": every.at(0.5),
            "p99_ms": every.at(0.99),
        }


def _line(queried: query_load.QueryResults) -> str:
    failed = ", ".join(f"{count:,} {name}" for name, count in sorted(queried.failed.items()))
    text = "".join(f"\n  {name} {message}" for name, message in sorted(queried.messages.items()))
    return (
        f"{len(queried.latencies_ms):,} queries, {queried.found:,} found, "
        f"failed: {failed or 'none'}{text}\n"
        f"median {queried.at(0.5):.1f} ms, 99 of 100 within {queried.at(0.99):.1f} ms, "
        f"all within {queried.latencies_ms[-1]:.1f} ms"
    )
