"""Instances are killed, paused, closed and added to while they are asked for their state.

    make chaos ARGS="--kind queries --seed 7 --minutes 2"

Two instances, each a driver process with Spark and its workers, ask themselves all the while. Every
answer must be one that some beginning of the input gives, not older than its bound, or a typed
error (`chaos.query_checks`). Ends with 1 if one was not.
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
from chaos.tending import Instance, Tended, send
from confluent_kafka import KafkaException
from support.meanwhile import meanwhile
from support.running.queried import Queried, newest_answers_of
from support.waiting import wait_for

from millstream import EXACTLY_ONCE_V2
from millstream.testing import EmbeddedKafka

logger = logging.getLogger("storm")

PARTITIONS = 4
_IDS = 20
_WRITE_S = 0.1
_LOOK_S = 0.3
#: After each fault so many partitions have to answer through another instance.
_THROUGH_OTHERS = 20
#: For so long one that was paused may not know that its tasks are another's.
_LEARNS_S = 3.0
_RECOVERED_S = 180
_LONG_S = 10.0
_SETTINGS: dict[str, Any] = {
    "num_stream_threads": 2,
    "num_standby_replicas": 1,
    "commit_interval_ms": 200,
    # So that each lets the other one ask it.
    "server_token": "only-for-this-storm",
}


@dataclass
class Report:
    """What was said.

    Args:
        kinds: of faults, how often each came.
        asked: how many questions there were, by kind.
        found: values that were told.
        whole: to how many questions every partition had an answer: those of the other instance too.
        others: how many partitions and pages came through another instance, and how often what it
            said got lost.
        held: how many answers of active tasks were held against what was committed before.
        refused: how often there was no answer, by the reason.
        wrong: answers that cannot be true: what was asked, and why not.
        slowest_ms: the slowest of a hundred, and the slowest of all.
        silent_s: for how long at most nothing was found, by whomever.
    """

    kinds: Counter[str]
    asked: Counter[str]
    found: int
    whole: int
    others: Counter[str]
    held: int
    refused: dict[str, int]
    wrong: list[str]
    slowest_ms: tuple[float, float]
    silent_s: float

    def __str__(self) -> str:
        wrong = "\n".join(self.wrong[:20])
        return (
            f"faults: {_counts(self.kinds)}\nasked: {_counts(self.asked)}\n"
            f"values told {self.found}, answered by all partitions {self.whole}, held against "
            f"what was committed {self.held}\nthrough another instance: {_counts(self.others)}\n"
            f"no answer: {_counts(self.refused)}\n"
            f"99 of 100 took at most {self.slowest_ms[0]:.1f} ms, all {self.slowest_ms[1]:.0f} ms; "
            f"nothing was found for {self.silent_s:.1f} s at most\n"
            f"wrong {len(self.wrong)}\n{wrong}"
        )


def _is_whole(asked: dict[str, Any]) -> bool:
    results = asked.get("results", {}).values()
    return len(results) == PARTITIONS and all("value" in each for each in results)


def _counts(counted: dict[str, int] | Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counted.items())) or "none"


def _since(instance: Instance, since_s: float) -> Iterator[dict[str, Any]]:
    answers = newest_answers_of(instance.script)
    return takewhile(lambda asked: asked["at_s"] >= since_s, answers)


class QueryStorm:
    """Faults that come over two instances.

    Args:
        seed: decides which, and on whom.
        queried: the application.
        exactly_once: whether it uses transactions.
    """

    def __init__(self, seed: int, queried: Queried, *, exactly_once: bool) -> None:
        self._queried = queried
        self._exactly_once = exactly_once
        self._chance = random.Random(seed)
        self._times: Counter[str] = Counter()
        self._committed = Committed()
        self._tended = Tended(queried, self._chance)
        self.kinds: dict[str, Callable[[], None]] = {
            "worker killed": lambda: send(signal.SIGKILL, *self._tended.worker()),
            "instance killed": lambda: send(signal.SIGKILL, *self._tended.any().processes),
            "worker paused": lambda: self._pause(self._tended.worker()),
            "instance closes": lambda: send(signal.SIGINT, self._tended.any().script.pid),
            "thread added": lambda: self._tended.change_threads("add"),
            "thread removed": lambda: self._tended.change_threads("remove"),
        }

    def run(self, seconds: float, kinds: Sequence[str] | None = None) -> Report:
        """Let faults come for so long, or those of these kinds, once each in this order."""
        with self._tended.running():
            with (
                meanwhile(lambda: self._queried.write(_IDS), _WRITE_S),
                meanwhile(self._look, _LOOK_S),
            ):
                self._recover()
                for kind in kinds or self._chosen(time.monotonic() + seconds):
                    self._times[kind] += 1
                    logger.info("%s", kind)
                    began = time.monotonic()
                    self.kinds[kind]()
                    self._recover()
                    logger.info("over after %.1f s", time.monotonic() - began)
            wait_for(lambda: self._queried.lag == 0, _RECOVERED_S, "everything is committed")
            written = Written(self._queried.written())
            self._wait_for_the_end(written)
            self._tended.end()
        return self._report(written)

    def _look(self) -> None:
        # A broker that has just started has no coordinator yet, which tells nothing.
        with suppress(KafkaException):
            counts = self._queried.committed()
            self._committed.note(time.time(), counts)

    def _chosen(self, end: float) -> Iterator[str]:
        while time.monotonic() < end:
            yield self._chance.choice(sorted(self.kinds))

    def _recover(self) -> None:
        """Wait until both are there again, each finds something that it did not know before, and
        they have answered through each other."""
        wait_for(lambda: self._tended.are_up, _RECOVERED_S, self._last_words)
        began = time.time()
        wait_for(
            lambda: (
                all(each.is_up and self._finds(each, began) for each in self._tended.all)
                and self._through_others(began) >= _THROUGH_OTHERS
            ),
            _RECOVERED_S,
            self._last_words,
        )

    def _finds(self, instance: Instance, since_s: float) -> bool:
        """Whether an instance has told a value since then."""
        return any(
            said.get("value")
            for asked in _since(instance, since_s)
            for said in asked.get("results", {}).values()
        )

    def _through_others(self, since_s: float) -> int:
        """How many partitions have answered through another instance since then."""
        return sum(
            asked["others"].get("partitions", 0)
            for each in self._tended.all
            for asked in _since(each, since_s)
        )

    def _wait_for_the_end(self, written: Written) -> None:
        """Until all that was written is told."""
        began = time.time()
        left = set(written.partitions)

        def is_told() -> bool:
            for asked in self._queried.asked():
                if asked["at_s"] < began or asked["how"] != "range" or "results" not in asked:
                    continue
                for name, said in asked["results"].items():
                    if said.get("value") and int(name) in left and self._is_all(written, said):
                        left.discard(int(name))
            return not left

        wait_for(is_told, _RECOVERED_S, lambda: f"all is told; not of partitions {left}")

    def _is_all(self, written: Written, said: dict[str, Any]) -> bool:
        return all(
            int(value.partition(":")[2]) == written.keys[key][2][-1]
            for key, value in said["value"].items()
        )

    def _report(self, written: Written) -> Report:
        checks = Checks(written, self._exactly_once, self._committed)
        wrong: list[str] = []
        every = sorted(self._queried.asked(), key=lambda asked: asked["at_s"])
        times, silent_s, last_s = [], 0.0, every[0]["at_s"]
        others: Counter[str] = Counter()
        for asked in every:
            before = checks.found
            if why := checks.wrong(asked):
                wrong.append(f"{why}: {asked}")
            times.append(asked["took_ms"])
            others.update(asked["others"])
            if checks.found > before:
                silent_s = max(silent_s, asked["at_s"] - last_s)
                last_s = asked["at_s"]
        times.sort()
        return Report(
            kinds=self._times,
            asked=Counter(asked["how"] for asked in every),
            found=checks.found,
            whole=sum(_is_whole(asked) for asked in every),
            others=others,
            held=checks.held,
            refused=checks.refused,
            wrong=wrong,
            slowest_ms=(times[len(times) * 99 // 100], times[-1]),
            silent_s=silent_s,
        )

    def _pause(self, processes: list[int]) -> None:
        began = time.time()
        send(signal.SIGSTOP, *processes)
        time.sleep(self._chance.choice([1.0, _LONG_S]))
        send(signal.SIGCONT, *processes)
        self._committed.doubt(began, time.time() + _LEARNS_S)

    def _last_words(self) -> str:
        words = self._tended.last_words(2_000)
        return f"both run and find something; their last words: {words}"


def query_storm(
    folder: Path,
    seed: int,
    seconds: float,
    kinds: Sequence[str] | None = None,
    guarantee: str = EXACTLY_ONCE_V2,
) -> Report:
    """Start everything, let faults come, and end everything.

    Args:
        folder: an empty one.
        seed: decides the faults.
        seconds: for how long they come.
        kinds: those that are to come, instead of any.
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
