"""Random scenarios through the real Kafka Streams and through millstream: are they the same?

    make fuzz ARGS="--seconds 60"
    make fuzz ARGS="--count 20000 --jobs 2"
    make fuzz ARGS="--group window --group session --seed 7"

Every run takes a new seed, which it prints. What differs is made small, printed, and written with
what Kafka Streams did, so that it can be moved to `vectors/regressions.jsonl` as it is.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.pool import Pool
from pathlib import Path

from conformance.assembled import assembled_scenario
from conformance.commands import commands_scenario
from conformance.connected import connected_scenario
from conformance.deviations import before_defect, deviation
from conformance.differences import differences, minimized
from conformance.oracle.process import (
    KafkaStreams,
    OracleFailed,
    OracleUnavailable,
    Scenario,
    memory,
)
from conformance.rare import rare_scenario
from conformance.twists import twisted_scenario
from conformance.vendored.generate import GROUPS as TYPICAL
from conformance.vendored.generate import rand_scenario, variations
from conformance.wild import wild_scenario

#: Groups of scenarios that are not typical of anything.
_OTHERS: dict[str, Callable[[str, int], Scenario]] = {
    "wild": wild_scenario,
    "rare": rare_scenario,
    "assembled": assembled_scenario,
    "commands": commands_scenario,
    "connected": connected_scenario,
    "twisted": twisted_scenario,
}
GROUPS = [*TYPICAL, *_OTHERS]

#: How many scenarios one process takes at a time.
_CHUNK = 48
#: After so many scenarios a process takes a new Java process: what leaks there ends.
_ORACLE_LIFE = 2_000
#: With so many differences something is plainly broken: more of them tell nothing.
_MOST_DIFFERENCES = 40
_MOST_SHOWN = 15
#: So many of the same kind, in a group and an aspect, are made small.
_MINIMIZED_EACH = 3


@dataclass
class Found:
    """What a number of scenarios gave.

    Attributes:
        count: how many were compared.
        left_out: how many the oracle could not run.
        deviating: how many were compared up to a defect of Kafka Streams, by what it is.
        differing: scenarios with `differences` and, if it was made small, `original`.
    """

    count: Counter[str] = field(default_factory=Counter)
    left_out: int = 0
    deviating: Counter[str] = field(default_factory=Counter)
    differing: list[Scenario] = field(default_factory=list)

    def add(self, other: Found) -> None:
        """Count the other's as well."""
        self.count += other.count
        self.left_out += other.left_out
        self.deviating += other.deviating
        self.differing += other.differing


def random_scenario(group: str, seed: str, index: int) -> Scenario:
    """A scenario of a group, or of none: the same for the same arguments."""
    if group in _OTHERS:
        return _OTHERS[group](seed, index)
    scenario: Scenario = rand_scenario(group, seed, index)
    return scenario


def scenarios(seed: str, groups: list[str]) -> Iterator[Scenario]:
    """Endlessly many: each group in turn; curated ones with other parameters and events."""
    index = 0
    while True:
        for group in groups:
            yield random_scenario(group, seed, index)
        index += 1
        if index % 25 == 0:
            varied = variations(f"{seed}/{index // 25}")
            chosen = random.Random(f"{seed}/{index}").sample(varied, len(varied) // 6)
            yield from (scenario for scenario in chosen if scenario["group"] in groups)


class Comparer:
    """Compares chunks of scenarios with an oracle of its own, which it starts when needed."""

    def __init__(self) -> None:
        self._oracle: KafkaStreams | None = None
        self._asked = 0
        self._minimized: Counter[tuple[str, str]] = Counter()

    def compare(self, chunk: list[Scenario]) -> Found:
        """Compare them all."""
        found = Found()
        answers = self._answers(chunk)
        # Where Kafka Streams fails by a defect, it tells of stores and bytes if it ends before.
        answers += self._answers([asked for each in answers if (asked := _before_defect(each))])
        for answer in answers:
            if "bad" in answer:
                found.left_out += 1
                continue
            found.count[answer["group"]] += 1
            deviates = deviation(answer)
            if deviates is not None:
                found.deviating[deviates.defect.row] += 1
            differing = differences(answer, excused=True)
            if differing:
                found.differing.append(self._told(answer, differing))
        return found

    def close(self) -> None:
        """End the oracle."""
        if self._oracle is not None:
            self._oracle.close()
            self._oracle = None

    def _answers(self, chunk: list[Scenario]) -> list[Scenario]:
        """What Kafka Streams did; what ends its process, or comes to no end there, is `bad`."""
        self._asked += len(chunk)
        answers: list[Scenario] = []
        while len(answers) < len(chunk):
            try:
                for answer in self._fresh_oracle().run_all(chunk[len(answers) :]):
                    answers.append(answer)  # noqa: PERF402 - what came before a failure is kept
            except OracleFailed as error:
                self.close()
                answers.append({**chunk[len(answers)], "bad": str(error)})
        return answers

    def _ask(self, scenario: Scenario) -> Scenario:
        self._asked += 1
        return self._fresh_oracle().run(scenario)

    def _fresh_oracle(self) -> KafkaStreams:
        if self._asked > _ORACLE_LIFE:
            self.close()
        if self._oracle is None:
            self._oracle = KafkaStreams()
            self._asked = 0
        return self._oracle

    def _told(self, scenario: Scenario, differing: dict[str, str]) -> Scenario:
        kind = (scenario["group"], next(iter(differing)))
        self._minimized[kind] += 1
        if self._minimized[kind] > _MINIMIZED_EACH:
            return {**scenario, "differences": differing}
        try:
            small = self._ask(minimized(scenario, lambda each: self._differs(each, kind[1])))
        except OracleFailed:
            self.close()
            return {**scenario, "differences": differing}
        return {**small, "differences": differences(small, excused=True), "original": differing}

    def _differs(self, scenario: Scenario, aspect: str) -> bool:
        answer = self._ask(scenario)
        return "bad" not in answer and aspect in differences(answer, excused=True)


def _before_defect(answer: Scenario) -> Scenario | None:
    return None if "bad" in answer else before_defect(answer)


_comparer: Comparer | None = None


def _in_process(chunk: list[Scenario]) -> Found:
    global _comparer
    if _comparer is None:
        _comparer = Comparer()
    return _comparer.compare(chunk)


def fuzz(
    seed: str,
    *,
    groups: list[str] = GROUPS,
    count: int | None = None,
    seconds: float | None = None,
    jobs: int = 1,
    heard: Callable[[Found], None] = lambda found: None,
) -> Found:
    """Compare scenarios until there were enough, the time is over, or too many differ.

    Args:
        seed: decides the scenarios.
        groups: of which groups they are.
        count: how many.
        seconds: for how long.
        jobs: how many processes, each with a Java process of its own.
        heard: is told what has been found so far.

    Raises:
        OracleUnavailable: Kafka Streams cannot be run here.
    """
    end = None if seconds is None else time.monotonic() + seconds
    wanted = islice(scenarios(seed, groups), count)
    chunks = iter(lambda: list(islice(wanted, _CHUNK)), [])
    total = Found()
    with KafkaStreams():
        pass  # The jars are there and the program is compiled before several processes start it.
    # What the processes leave behind when they are ended goes with their folder.
    place = tempfile.TemporaryDirectory(dir=memory(), ignore_cleanup_errors=True)
    with place as folder, _pool(jobs, folder) as pool:
        under_way = [pool.apply_async(_in_process, (chunk,)) for chunk in islice(chunks, jobs)]
        while under_way:
            total.add(under_way.pop(0).get())
            heard(total)
            over = end is not None and time.monotonic() > end
            if not over and len(total.differing) < _MOST_DIFFERENCES:
                under_way += [pool.apply_async(_in_process, (c,)) for c in islice(chunks, 1)]
    return total


def _pool(jobs: int, folder: str) -> Pool:
    # Their Java processes end with their standard input, when these processes end.
    return multiprocessing.get_context("spawn").Pool(jobs, _begin, [folder])


def _begin(folder: str) -> None:
    logging.disable(logging.CRITICAL)
    tempfile.tempdir = folder


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", help="decides the scenarios; a new one by default")
    parser.add_argument("--count", type=int, help="how many scenarios (2,000)")
    parser.add_argument("--seconds", type=float, help="for how long, instead of a count")
    parser.add_argument("--group", action="append", choices=GROUPS, help="only these groups")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--out", type=Path, default=Path("fuzz-differences.jsonl"))
    return parser.parse_args()


def main() -> int:
    """Exit code 0: no difference; 1: some; 2: Kafka Streams cannot be run here."""
    arguments = _arguments()
    seed = arguments.seed or os.urandom(4).hex()
    count = arguments.count or (2_000 if arguments.seconds is None else None)
    began = time.monotonic()
    print(f"seed {seed}")

    def show(found: Found) -> None:
        compared = found.count.total()
        rate = compared / (time.monotonic() - began)
        line = f"\r{compared} scenarios, {len(found.differing)} differ, {rate:.0f}/s "
        print(line, end="", file=sys.stderr, flush=True)

    try:
        found = fuzz(
            seed,
            groups=arguments.group or GROUPS,
            count=count,
            seconds=arguments.seconds,
            jobs=arguments.jobs,
            heard=show,
        )
    except OracleUnavailable as error:
        print(error, file=sys.stderr)
        return 2
    print(file=sys.stderr)
    _report(found, seed, arguments.out)
    return 1 if found.differing else 0


def _report(found: Found, seed: str, path: Path) -> None:
    for group, number in sorted(found.count.items()):
        print(f"{group:20} {number:6}")
    for differing in found.differing[:_MOST_SHOWN]:
        print(f"DIFFERS [{differing['group']}] {differing['name']}")
        for aspect, difference in differing["differences"].items():
            print(f"     {aspect}: {' '.join(difference.split())[:300]}")
    for row, number in sorted(found.deviating.items()):
        print(f"{number:6} up to a defect: {row}")
    total = found.count.total()
    print(
        f"{total} compared, {found.left_out} left out, {len(found.differing)} differ (seed {seed})"
    )
    if found.differing:
        lines = [json.dumps(each, ensure_ascii=False) + "\n" for each in found.differing]
        path.write_text("".join(lines), encoding="utf-8")
        print(f"written to {path}")


if __name__ == "__main__":
    sys.exit(main())
