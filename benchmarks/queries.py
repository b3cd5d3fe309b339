"""What queries cost: the counting job without any, though with who would ask, with a thousand a
second by a view, and with as many over HTTP, in turns."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import asking
from broker import Cluster
from measure import RunFailedError
from throughput import Case, Throughput

RATE = 1_000
ROUNDS = 4
#: Some ten seconds, beside which the first one of each run does not count.
RECORDS = 6_000_000
_JOB = "count"
_ALONE, _BY_VIEW, _OVER_HTTP = "alone", "by view", "over HTTP"
_WARM_UP = "to warm up"
_WAYS = (_ALONE, _BY_VIEW, _OVER_HTTP)


class Queried:
    """The rounds, on one broker with one loaded topic."""

    def __init__(self, options: argparse.Namespace, cluster: Cluster, folder: Path) -> None:
        self._rounds: int = options.rounds or ROUNDS
        #: A broker that has just been loaded takes a minute to settle, on the second of two cores.
        self._warm_ups = 0 if options.smoke else 3
        self._folder = folder / "queries"
        self._folder.mkdir()
        self._runs = Throughput(options, cluster, self._folder, [])
        if not (options.records or options.smoke):
            self._runs.records = RECORDS
        self._asked: dict[str, list[asking.Asked]] = {_BY_VIEW: [], _OVER_HTTP: []}

    def run(self) -> dict[str, Any]:
        """Does every round, and prints what came out; what is to be saved."""
        runs = self._runs
        runs.load_for(_JOB)
        print(f"job {_JOB}, {runs.records:,} records, {RATE:,} queries/s of random keys")
        for number in range(1, self._warm_ups + 1):
            self._runs.one("ours", Case(_JOB, _WARM_UP), number)
        for number in range(1, self._rounds + 1):
            for way in _WAYS if number % 2 else reversed(_WAYS):
                self._one(number, way)
        return self._summary()

    def _one(self, number: int, way: str) -> None:
        file = self._folder / f"asked-{way}-{number}.json"
        settings = {asking.RATE: str(RATE), asking.FILE: str(file)}
        if way != _BY_VIEW:
            settings[asking.SILENT if way == _ALONE else asking.OVER_HTTP] = "true"
        self._runs.one("ours", Case(_JOB, way, settings, "asked"), number)
        if way == _ALONE:
            return
        asked = asking.read(file)
        if not asked.found:
            raise RunFailedError(f"Round {number}: no query has found anything; {asked.messages}.")
        self._asked[way].append(asked)
        print(_line(asked), flush=True)

    def _summary(self) -> dict[str, Any]:
        rates = {
            way: [
                # Until the last one was decoded: what follows depends on when it is closed.
                result.records / result.decoded_s
                for result in self._runs.results
                if result.job == f"{_JOB} {way}" and result.decoded_s
            ]
            for way in _WAYS
        }
        print(f"\nmedians: {statistics.median(rates[_ALONE]):,.0f} records/s {_ALONE}")
        return {
            "rates": rates,
            "queries": {way: self._summary_of(way, rates) for way in self._asked},
            "runs": [result.to_dict() for result in self._runs.results],
        }

    def _summary_of(self, way: str, rates: Mapping[str, Sequence[float]]) -> dict[str, Any]:
        # Round by round, since a machine that is busy is not as busy all the time.
        ratios = [asked / alone for asked, alone in zip(rates[way], rates[_ALONE], strict=True)]
        ratio = statistics.median(ratios)
        print(
            f"asked {way}: {statistics.median(rates[way]):,.0f} records/s, {ratio:.3f} of it "
            f"({min(ratios):.3f} to {max(ratios):.3f} in a round)"
        )
        every = asking.Asked.all_of(self._asked[way])
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


def _line(asked: asking.Asked) -> str:
    failed = ", ".join(f"{count:,} {name}" for name, count in sorted(asked.failed.items()))
    said = "".join(f"\n  {name} {message}" for name, message in sorted(asked.messages.items()))
    return (
        f"{len(asked.latencies_ms):,} queries, {asked.found:,} found, failed: {failed or 'none'}"
        f"{said}\nmedian {asked.at(0.5):.1f} ms, 99 of 100 within {asked.at(0.99):.1f} ms, "
        f"all within {asked.latencies_ms[-1]:.1f} ms"
    )
