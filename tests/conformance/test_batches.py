"""A batch at a time gives what one record at a time gives, in every recorded and random topology.

Method: all events of a scenario are queued at once. The engine in batches of 1, 7 and 1,000 records
is compared with the same operators called one record at a time, depth-first
(`support.batches.depth_first`): the same records on each topic in the same order, the same bytes in
changelogs, the same stores, as many records dropped. The wall clock stands still, and there is one
commit after each round.
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
from support.batches.queued_driver import QueuedDriver
from support.effort import EXAMPLES

VECTORS = sorted((Path(__file__).parent / "vectors").glob("*.jsonl"))
#: Batches that differ in size, and in whether records of different topics are kept in order.
BATCHES = ((1, False), (7, False), (1_000, False), (1_000, True))

Scenario = dict[str, Any]


class Result(NamedTuple):
    """What a run left behind; after a failure nothing but its kind counts."""

    failure: str | None
    written: Any = None
    stores: Any = None
    dropped: Any = None


def recorded() -> list[Scenario]:
    """The recorded scenarios that can be built."""
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
    """Run the scenario: in batches, or plainly one record at a time."""
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
    """How many records were left out."""
    return sum(v for n, v in driver.metrics().items() if n.name == "dropped-records-total")


def feed(driver: QueuedDriver, scenario: Scenario) -> None:
    for event in scenario["events"]:
        if "topic" in event:
            headers = [(n, None if v is None else v.encode()) for n, v in event.get("headers", [])]
            key, value = encode(event.get("key")), encode(event.get("value"))
            driver.feed(event["topic"], key, value, event["ts"], tuple(headers))
    driver.finish()


def batches_that_differ(scenario: Scenario, folder: Path) -> list[tuple[int, bool]]:
    """Those of `BATCHES` that give something else than record after record."""
    if scenario["config"].get("cache_max_bytes"):
        # What a full cache evicts, and when, does depend on batches.
        config = {**scenario["config"], "cache_max_bytes": 10_000_000}
        scenario = {**scenario, "config": config}
    plainly = result_of(scenario, folder, plain=True)
    return [
        (size, order)
        for size, order in BATCHES
        if result_of(scenario, folder, size, order=order) != plainly
    ]


def check(scenario: Scenario, folder: Path) -> None:
    def differs(smaller: Scenario) -> bool:
        try:
            return batches_that_differ(smaller, folder) != []
        except Exception:
            return False

    if batches := batches_that_differ(scenario, folder):
        small = json.dumps(minimized(scenario, differs), ensure_ascii=False)
        pytest.fail(f"{batches} (batch size, order across topics) differ, also in {small}")


@pytest.mark.parametrize("scenario", recorded(), ids=name)
def test_batches_change_nothing(scenario: Scenario, tmp_path: Path) -> None:
    """Hunts operators that look at their batch as a whole, and steps that are cut wrongly."""
    check(scenario, tmp_path)


@settings(max_examples=EXAMPLES, deadline=None)
@given(group=st.sampled_from(GROUPS), seed=st.integers(0, 1_000_000_000))
def test_batches_change_nothing_in_random_topologies(group: str, seed: int) -> None:
    """The same for topologies that nobody thought of."""
    with tempfile.TemporaryDirectory() as folder:
        check({**random_scenario(group, str(seed), 0), "expect": {}}, Path(folder))
