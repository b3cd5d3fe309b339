"""Batched processing has the same results as record-at-a-time processing, for recorded and random
topologies.

Method: all events of a scenario are queued at once. The engine with batches of 1, 7 and 1,000
records is compared with the same operators called for one record at a time, depth-first
(`support.batches.depth_first`). Records and their order on each topic, changelog bytes, store
contents and the number of dropped records must be the same. The wall clock does not advance, and
there is one commit after each round.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conformance.differences import minimized
from conformance.fuzz import GROUPS, random_scenario
from conformance.vendored.interpret import Build, encode, stores
from hypothesis import given, settings
from hypothesis import strategies as st
from support.batches.drivers import QueuedDriver
from support.effort import EXAMPLES

VECTORS = sorted((Path(__file__).parent / "vectors").glob("*.jsonl"))
#: Batch sizes, and whether the order of records across topics is kept.
BATCHES = ((1, False), (7, False), (1_000, False), (1_000, True))

Scenario = dict[str, Any]


class Result(NamedTuple):
    """The results of a run; after a failure, only its kind."""

    failure: str | None
    written: Any = None
    stores: Any = None
    dropped: Any = None


def recorded() -> list[Scenario]:
    """Load the recorded scenarios with valid topologies."""
    lines = [line for path in VECTORS for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        scenario
        for scenario in map(json.loads, lines)
        if scenario["expect"].get("error", {}).get("stage") != "build"
    ]


def name(scenario: Scenario) -> str:
    return f"{scenario['group']}: {scenario['name']}"


def result_of(
    scenario: Scenario,
    folder: Path,
    batch_size: int = 1,
    *,
    order: bool = True,
    plain: bool = False,
) -> Result:
    """Run the scenario in batches, or one record at a time (`plain`)."""
    with ExitStack() as stack:
        try:
            build = Build(scenario)
            driver = QueuedDriver(
                build.topology,
                build.config(str(folder)),
                batch_size=batch_size,
                order_across_topics=order,
                plain=plain,
            )
            stack.callback(driver.close)
            feed(driver, scenario)
        except Exception as error:
            return Result(type(error).__name__)
        return Result(None, driver.written(), stores(driver, scenario), dropped(driver))


def dropped(driver: QueuedDriver) -> float:
    """The number of dropped records."""
    return sum(v for n, v in driver.metrics().items() if n.name == "dropped-records-total")


def feed(driver: QueuedDriver, scenario: Scenario) -> None:
    for event in scenario["events"]:
        if "topic" in event:
            headers = [(n, None if v is None else v.encode()) for n, v in event.get("headers", [])]
            key, value = encode(event.get("key")), encode(event.get("value"))
            driver.feed(event["topic"], key, value, event["ts"], tuple(headers))
    driver.finish()


def differing_batches(scenario: Scenario, folder: Path) -> list[tuple[int, bool]]:
    """Return the `BATCHES` whose results differ from record-at-a-time processing."""
    if scenario["config"].get("cache_max_bytes"):
        # The evictions of a full cache depend on batches.
        config = {**scenario["config"], "cache_max_bytes": 10_000_000}
        scenario = {**scenario, "config": config}
    record_at_a_time = result_of(scenario, folder, plain=True)
    return [
        (size, order)
        for size, order in BATCHES
        if result_of(scenario, folder, size, order=order) != record_at_a_time
    ]


def check(scenario: Scenario, folder: Path) -> None:
    def differs(smaller: Scenario) -> bool:
        try:
            return differing_batches(smaller, folder) != []
        except Exception:
            return False

    if batches := differing_batches(scenario, folder):
        small = json.dumps(minimized(scenario, differs), ensure_ascii=False)
        pytest.fail(f"{batches} (batch size, order across topics) differ, also in {small}")


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(scenario, id=name(scenario), marks=[pytest.mark.extended] * (number % 4 > 0))
        for number, scenario in enumerate(recorded())
    ],
)
def test_batches_change_nothing(scenario: Scenario, tmp_path: Path) -> None:
    """Detects operators that depend on the boundaries of their batches."""
    check(scenario, tmp_path)


@pytest.mark.extended
@settings(max_examples=EXAMPLES, deadline=None)
@given(group=st.sampled_from(GROUPS), seed=st.integers(0, 1_000_000_000))
def test_batches_change_nothing_in_random_topologies(group: str, seed: int) -> None:
    """The same for random topologies."""
    with tempfile.TemporaryDirectory() as folder:
        check({**random_scenario(group, str(seed), 0), "expect": {}}, Path(folder))
