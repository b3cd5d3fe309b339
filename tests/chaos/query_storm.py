"""Queries instances while they are killed, paused, closed and scaled.

    make chaos ARGS="--kind queries --seed 7 --minutes 2"

Two instances, each a driver process with Spark and its workers, query themselves continuously.
Every answer must correspond to some prefix of the input that is not before its bound, or be a typed
error (`chaos.query_checks`). Exits with 1 if an answer is wrong.
"""

from __future__ import annotations

import logging
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from chaos.command_line import add_guarantee, parsed, parser_of
from chaos.query_checks import Checks, Committed, Written
from chaos.tending import Instance, SupervisedInstances, send
from confluent_kafka import KafkaException
from support.background import background
from support.running.queried_application import Queried, newest_queries
from support.waiting import wait_for

from millstream import EXACTLY_ONCE_V2
from millstream.testing import EmbeddedKafka

logger = logging.getLogger("storm")

PARTITIONS = 4
_IDS = 20
_WRITE_S = 0.1
_OBSERVE_S = 0.3
#: The number of partitions that must answer through another instance after each fault.
_MIN_REMOTE_PARTITIONS = 20
#: The time after a pause in which a process may not have noticed the loss of its tasks.
_NOTICE_S = 3.0
_RECOVERED_S = 180
_LONG_S = 10.0
_SETTINGS: dict[str, Any] = {
    "num_stream_threads": 2,
    "num_standby_replicas": 1,
    "commit_interval_ms": 200,
    # The token with which the instances query each other.
    "server_token": "only-for-this-storm",
}


@dataclass
class Report:
    """The results of a storm.

    Args:
        kinds: the number of faults of each kind.
        queries: the number of queries of each kind.
        found: the number of values in answers.
        whole: the number of queries with answers of all partitions, including remote ones.
        others: the numbers of partitions and pages answered by another instance, and of lost
            responses.
        compared: the number of answers of active tasks that were compared with committed offsets.
        failures: the number of queries without an answer, by reason.
        wrong: the wrong answers, with their problems.
        slowest_ms: the 99th percentile and the maximum of the latency.
        longest_gap_s: the longest time without any value.
    """

    kinds: Counter[str]
    queries: Counter[str]
    found: int
    whole: int
    others: Counter[str]
    compared: int
    failures: dict[str, int]
    wrong: list[str]
    slowest_ms: tuple[float, float]
    longest_gap_s: float

    def __str__(self) -> str:
        wrong = "\n".join(self.wrong[:20])
        return (
            f"faults: {_counts(self.kinds)}\nqueries: {_counts(self.queries)}\n"
            f"values {self.found}, answered by all partitions {self.whole}, compared with "
            f"committed offsets {self.compared}\nthrough another instance: {_counts(self.others)}\n"
            f"no answer: {_counts(self.failures)}\n"
            f"latency p99 {self.slowest_ms[0]:.1f} ms, maximum {self.slowest_ms[1]:.0f} ms; "
            f"longest time without a value {self.longest_gap_s:.1f} s\n"
            f"wrong {len(self.wrong)}\n{wrong}"
        )


def _is_whole(query: dict[str, Any]) -> bool:
    results = query.get("results", {}).values()
    return len(results) == PARTITIONS and all("value" in each for each in results)


def _counts(counted: dict[str, int] | Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counted.items())) or "none"


def _since(instance: Instance, since_s: float) -> Iterator[dict[str, Any]]:
    answers = newest_queries(instance.script)
    return takewhile(lambda query: query["at_s"] >= since_s, answers)


class QueryStorm:
    """Injects faults into two instances.

    Args:
        seed: determines the faults and their targets.
        queried: the application.
        exactly_once: whether it uses transactions.
    """

    def __init__(self, seed: int, queried: Queried, *, exactly_once: bool) -> None:
        self._queried = queried
        self._exactly_once = exactly_once
        self._rng = random.Random(seed)
        self._times: Counter[str] = Counter()
        self._committed = Committed()
        self._supervised = SupervisedInstances(queried, self._rng)
        self.kinds: dict[str, Callable[[], None]] = {
            "worker killed": lambda: send(signal.SIGKILL, *self._supervised.worker()),
            "instance killed": lambda: send(signal.SIGKILL, *self._supervised.any().processes),
            "worker paused": lambda: self._pause(self._supervised.worker()),
            "instance closed": lambda: send(signal.SIGINT, self._supervised.any().script.pid),
            "thread added": lambda: self._supervised.change_threads("add"),
            "thread removed": lambda: self._supervised.change_threads("remove"),
        }

    def run(self, seconds: float, kinds: Sequence[str] | None = None) -> Report:
        """Inject random faults for this time, or faults of the given kinds in their order."""
        with self._supervised.running():
            with (
                background(lambda: self._queried.write(_IDS), _WRITE_S),
                background(self._observe_committed, _OBSERVE_S),
            ):
                self._recover()
                for kind in kinds or self._chosen(time.monotonic() + seconds):
                    self._times[kind] += 1
                    logger.info("%s", kind)
                    began = time.monotonic()
                    self.kinds[kind]()
                    self._recover()
                    logger.info("recovered after %.1f s", time.monotonic() - began)
            wait_for(lambda: self._queried.lag == 0, _RECOVERED_S, "everything is committed")
            written = Written(self._queried.written())
            self._wait_for_the_end(written)
            self._supervised.end()
        return self._report(written)

    def _observe_committed(self) -> None:
        # A broker that has just started has no coordinator yet.
        with suppress(KafkaException):
            counts = self._queried.committed()
            self._committed.note(time.time(), counts)

    def _chosen(self, end: float) -> Iterator[str]:
        while time.monotonic() < end:
            yield self._rng.choice(sorted(self.kinds))

    def _recover(self) -> None:
        """Wait until both instances are running, each returns a value, and they have answered
        through each other."""
        wait_for(lambda: self._supervised.are_up, _RECOVERED_S, self._last_errors)
        began = time.time()
        wait_for(
            lambda: (
                all(each.is_up and self._finds(each, began) for each in self._supervised.all)
                and self._remote_partitions(began) >= _MIN_REMOTE_PARTITIONS
            ),
            _RECOVERED_S,
            self._last_errors,
        )

    def _finds(self, instance: Instance, since_s: float) -> bool:
        """Whether an instance has returned a value since a time."""
        return any(
            answer.get("value")
            for query in _since(instance, since_s)
            for answer in query.get("results", {}).values()
        )

    def _remote_partitions(self, since_s: float) -> int:
        """The number of partitions that have answered through another instance since a time."""
        return sum(
            query["others"].get("partitions", 0)
            for each in self._supervised.all
            for query in _since(each, since_s)
        )

    def _wait_for_the_end(self, written: Written) -> None:
        """Wait until answers contain everything written."""
        began = time.time()
        left = set(written.partitions)

        def is_complete() -> bool:
            for query in self._queried.queries():
                if query["at_s"] < began or query["how"] != "range" or "results" not in query:
                    continue
                for name, answer in query["results"].items():
                    if answer.get("value") and int(name) in left and self._is_all(written, answer):
                        left.discard(int(name))
            return not left

        wait_for(
            is_complete, _RECOVERED_S, lambda: f"answers are complete; partitions {left} are not"
        )

    def _is_all(self, written: Written, answer: dict[str, Any]) -> bool:
        return all(
            int(value.partition(":")[2]) == written.keys[key][2][-1]
            for key, value in answer["value"].items()
        )

    def _report(self, written: Written) -> Report:
        checks = Checks(written, self._exactly_once, self._committed)
        wrong: list[str] = []
        queries = sorted(self._queried.queries(), key=lambda query: query["at_s"])
        times, longest_gap_s, last_s = [], 0.0, queries[0]["at_s"]
        others: Counter[str] = Counter()
        for query in queries:
            before = checks.found
            if why := checks.wrong(query):
                wrong.append(f"{why}: {query}")
            times.append(query["took_ms"])
            others.update(query["others"])
            if checks.found > before:
                longest_gap_s = max(longest_gap_s, query["at_s"] - last_s)
                last_s = query["at_s"]
        times.sort()
        return Report(
            kinds=self._times,
            queries=Counter(query["how"] for query in queries),
            found=checks.found,
            whole=sum(_is_whole(query) for query in queries),
            others=others,
            compared=checks.compared,
            failures=checks.failures,
            wrong=wrong,
            slowest_ms=(times[len(times) * 99 // 100], times[-1]),
            longest_gap_s=longest_gap_s,
        )

    def _pause(self, processes: list[int]) -> None:
        began = time.time()
        send(signal.SIGSTOP, *processes)
        time.sleep(self._rng.choice([1.0, _LONG_S]))
        send(signal.SIGCONT, *processes)
        self._committed.note_uncertainty(began, time.time() + _NOTICE_S)

    def _last_errors(self) -> str:
        words = self._supervised.last_errors(2_000)
        return f"both instances return values; their last errors: {words}"


def query_storm(
    folder: Path,
    seed: int,
    seconds: float,
    kinds: Sequence[str] | None = None,
    guarantee: str = EXACTLY_ONCE_V2,
) -> Report:
    """Start the broker and the application, inject faults, and shut everything down.

    Args:
        folder: an empty folder.
        seed: determines the faults.
        seconds: the duration of the faults.
        kinds: the kinds of faults, instead of random ones.
        guarantee: the processing guarantee.
    """
    with EmbeddedKafka() as kafka:
        settings = {**_SETTINGS, "processing_guarantee": guarantee}
        queried = Queried(kafka, folder, PARTITIONS, **settings)
        exactly_once = guarantee == EXACTLY_ONCE_V2
        return QueryStorm(seed, queried, exactly_once=exactly_once).run(seconds, kinds)


def main() -> int:
    parser = parser_of(__doc__, minutes=2)
    parser.add_argument("--kind", choices=("queries",), required=True)
    add_guarantee(parser, EXACTLY_ONCE_V2)
    arguments = parsed(parser)
    with tempfile.TemporaryDirectory() as folder:
        report = query_storm(
            Path(folder),
            arguments.seed,
            arguments.minutes * 60,
            arguments.only,
            arguments.guarantee,
        )
    print(report)  # noqa: T201
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
