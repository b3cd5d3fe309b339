"""Compares random scenarios in Kafka Streams and in Millstream.

    make fuzz ARGS="--seconds 60"
    make fuzz ARGS="--count 20000 --jobs 2"
    make fuzz ARGS="--group window --group session --seed 7"

Every run uses a new seed and prints it. Differing scenarios are minimized, printed, and written
with Kafka Streams' results, so that they can be moved to `vectors/regressions.jsonl` unchanged.
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

from conformance.deviations import before_defect, deviation
from conformance.differences import differences, minimized
from conformance.generators.assembled import assembled_scenario
from conformance.generators.commands import commands_scenario
from conformance.generators.connected import connected_scenario
from conformance.generators.rare import rare_scenario
from conformance.generators.twists import twisted_scenario
from conformance.generators.wild import wild_scenario
from conformance.oracle.process import (
    KafkaStreams,
    OracleFailed,
    OracleUnavailable,
    Scenario,
    memory_folder,
)
from conformance.vendored.generate import GROUPS as TYPICAL
from conformance.vendored.generate import rand_scenario, variations

#: Groups of unusual scenarios.
_OTHERS: dict[str, Callable[[str, int], Scenario]] = {
    "wild": wild_scenario,
    "rare": rare_scenario,
    "assembled": assembled_scenario,
    "commands": commands_scenario,
    "connected": connected_scenario,
    "twisted": twisted_scenario,
}
GROUPS = [*TYPICAL, *_OTHERS]

#: The number of scenarios that a process compares at a time.
_CHUNK = 48
#: The number of scenarios after which a process restarts its Java process, to limit leaks.
_ORACLE_MAX_SCENARIOS = 2_000
#: The number of differences after which a run ends, since more of them are not informative.
_MAX_DIFFERENCES = 40
_MAX_SHOWN = 15
#: The number of differences in one aspect of one group that are minimized.
_MAX_MINIMIZED = 3


@dataclass
class FuzzResult:
    """The results of comparing scenarios.

    Attributes:
        count: the number of compared scenarios by group.
        left_out: the number of scenarios that the oracle could not run.
        deviating: the number of scenarios that were compared up to a defect of Kafka Streams.
        differing: scenarios with `differences` and, if minimized, `original`.
    """

    count: Counter[str] = field(default_factory=Counter)
    left_out: int = 0
    deviating: Counter[str] = field(default_factory=Counter)
    differing: list[Scenario] = field(default_factory=list)

    def add(self, other: FuzzResult) -> None:
        """Add the other results."""
        self.count += other.count
        self.left_out += other.left_out
        self.deviating += other.deviating
        self.differing += other.differing


def random_scenario(group: str, seed: str, index: int) -> Scenario:
    """Create a scenario of a group; the same for the same arguments."""
    if group in _OTHERS:
        return _OTHERS[group](seed, index)
    scenario: Scenario = rand_scenario(group, seed, index)
    return scenario


def scenarios(seed: str, groups: list[str]) -> Iterator[Scenario]:
    """Generate scenarios endlessly: each group in turn, and variations of curated ones."""
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
    """Compares chunks of scenarios with its own oracle, started when needed."""

    def __init__(self) -> None:
        self._oracle: KafkaStreams | None = None
        self._oracle_runs = 0
        self._minimized: Counter[tuple[str, str]] = Counter()

    def compare(self, chunk: list[Scenario]) -> FuzzResult:
        """Compare all scenarios of a chunk."""
        found = FuzzResult()
        answers = self._answers(chunk)
        # After a failure by a defect, only the events before it give stores and bytes.
        answers += self._answers([prefix for each in answers if (prefix := _before_defect(each))])
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
                found.differing.append(self._reported(answer, differing))
        return found

    def close(self) -> None:
        """Close the oracle."""
        if self._oracle is not None:
            self._oracle.close()
            self._oracle = None

    def _answers(self, chunk: list[Scenario]) -> list[Scenario]:
        """Run scenarios in Kafka Streams; those that end its process or time out are `bad`."""
        self._oracle_runs += len(chunk)
        answers: list[Scenario] = []
        while len(answers) < len(chunk):
            try:
                for answer in self._fresh_oracle().run_all(chunk[len(answers) :]):
                    answers.append(answer)  # noqa: PERF402 - what came before a failure is kept
            except OracleFailed as error:
                self.close()
                answers.append({**chunk[len(answers)], "bad": str(error)})
        return answers

    def _run_in_kafka_streams(self, scenario: Scenario) -> Scenario:
        self._oracle_runs += 1
        return self._fresh_oracle().run(scenario)

    def _fresh_oracle(self) -> KafkaStreams:
        if self._oracle_runs > _ORACLE_MAX_SCENARIOS:
            self.close()
        if self._oracle is None:
            self._oracle = KafkaStreams()
            self._oracle_runs = 0
        return self._oracle

    def _reported(self, scenario: Scenario, differing: dict[str, str]) -> Scenario:
        kind = (scenario["group"], next(iter(differing)))
        self._minimized[kind] += 1
        if self._minimized[kind] > _MAX_MINIMIZED:
            return {**scenario, "differences": differing}
        try:
            small = self._run_in_kafka_streams(
                minimized(scenario, lambda each: self._differs(each, kind[1]))
            )
        except OracleFailed:
            self.close()
            return {**scenario, "differences": differing}
        return {**small, "differences": differences(small, excused=True), "original": differing}

    def _differs(self, scenario: Scenario, aspect: str) -> bool:
        answer = self._run_in_kafka_streams(scenario)
        return "bad" not in answer and aspect in differences(answer, excused=True)


def _before_defect(answer: Scenario) -> Scenario | None:
    return None if "bad" in answer else before_defect(answer)


_comparer: Comparer | None = None


def _in_process(chunk: list[Scenario]) -> FuzzResult:
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
    on_progress: Callable[[FuzzResult], None] = lambda found: None,
) -> FuzzResult:
    """Compare scenarios until a count, a time, or the maximum of differences is reached.

    Args:
        seed: determines the scenarios.
        groups: the groups of the scenarios.
        count: the number of scenarios.
        seconds: the duration.
        jobs: the number of processes, each with its own Java process.
        on_progress: called with the results so far.

    Raises:
        OracleUnavailable: Kafka Streams cannot be run here.
    """
    end = None if seconds is None else time.monotonic() + seconds
    selected = islice(scenarios(seed, groups), count)
    chunks = iter(lambda: list(islice(selected, _CHUNK)), [])
    total = FuzzResult()
    with KafkaStreams():
        pass  # Download and compile before several processes start the oracle.
    # Files of terminated processes are deleted with their folder.
    temporary = tempfile.TemporaryDirectory(dir=memory_folder(), ignore_cleanup_errors=True)
    with temporary as folder, _pool(jobs, folder) as pool:
        pending = [pool.apply_async(_in_process, (chunk,)) for chunk in islice(chunks, jobs)]
        while pending:
            total.add(pending.pop(0).get())
            on_progress(total)
            over = end is not None and time.monotonic() > end
            if not over and len(total.differing) < _MAX_DIFFERENCES:
                pending += [pool.apply_async(_in_process, (c,)) for c in islice(chunks, 1)]
    return total


def _pool(jobs: int, folder: str) -> Pool:
    # The Java processes end when these processes close their standard input.
    return multiprocessing.get_context("spawn").Pool(jobs, _initialize_process, [folder])


def _initialize_process(folder: str) -> None:
    logging.disable(logging.CRITICAL)
    tempfile.tempdir = folder


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", help="determines the scenarios; a new one by default")
    parser.add_argument("--count", type=int, help="number of scenarios (2,000)")
    parser.add_argument("--seconds", type=float, help="duration, instead of a count")
    parser.add_argument("--group", action="append", choices=GROUPS, help="only these groups")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes (1)")
    parser.add_argument("--out", type=Path, default=Path("fuzz-differences.jsonl"))
    return parser.parse_args()


def main() -> int:
    """Run the command. Exit codes: 0, no difference; 1, differences; 2, no Kafka Streams."""
    arguments = _arguments()
    seed = arguments.seed or os.urandom(4).hex()
    count = arguments.count or (2_000 if arguments.seconds is None else None)
    began = time.monotonic()
    print(f"seed {seed}")

    def show(found: FuzzResult) -> None:
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
            on_progress=show,
        )
    except OracleUnavailable as error:
        print(error, file=sys.stderr)
        return 2
    print(file=sys.stderr)
    _report(found, seed, arguments.out)
    return 1 if found.differing else 0


def _report(found: FuzzResult, seed: str, path: Path) -> None:
    for group, number in sorted(found.count.items()):
        print(f"{group:20} {number:6}")
    for differing in found.differing[:_MAX_SHOWN]:
        print(f"DIFFERS [{differing['group']}] {differing['name']}")
        for aspect, difference in differing["differences"].items():
            print(f"     {aspect}: {' '.join(difference.split())[:300]}")
    for row, number in sorted(found.deviating.items()):
        print(f"{number:6} compared up to a defect: {row}")
    total = found.count.total()
    print(f"{total} compared, {found.left_out} failed, {len(found.differing)} differ (seed {seed})")
    if found.differing:
        lines = [json.dumps(each, ensure_ascii=False) + "\n" for each in found.differing]
        path.write_text("".join(lines), encoding="utf-8")
        print(f"written to {path}")


if __name__ == "__main__":
    sys.exit(main())
