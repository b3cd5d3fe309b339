"""Where Kafka Streams fails by a defect of its own: what is excused, and what we do instead."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from conformance.deviations import DEFECTS, Defect, before_defect, deviation
from conformance.differences import differences
from conformance.test_conformance import name, scenarios
from conformance.vendored.interpret import run

Scenario = dict[str, Any]

MEETING = [scenario for scenario in scenarios() if deviation(scenario) is not None]
DOCUMENTED = Path(__file__).parents[2] / "docs" / "differences.md"


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.row)
def test_each_defect_is_documented_and_recorded(defect: Defect) -> None:
    """Nothing is excused that users are not told of, and nothing that nobody has seen."""
    assert f"\n| {defect.row}" in DOCUMENTED.read_text(encoding="utf-8")
    assert any(met.defect == defect for scenario in MEETING if (met := deviation(scenario)))


@pytest.mark.parametrize("scenario", MEETING, ids=name)
def test_the_same_error_from_elsewhere_is_not_excused(scenario: Scenario) -> None:
    """A waiver by the kind of the error alone, as any bug of ours could hide behind it."""
    changed = copy.deepcopy(scenario)
    expected = changed["expect"]
    for error in [
        *expected.get("handled", []),
        *([expected["error"]] if "error" in expected else []),
    ]:
        error["thrown"] = ["ThreadCache.range"]
    assert deviation(changed) is None
    assert differences(changed) != {}


@pytest.mark.parametrize("scenario", [each for each in MEETING if before_defect(each)], ids=name)
def test_what_comes_before_the_defect_is_compared(scenario: Scenario) -> None:
    """An expectation changed in what is known before the failing event, which has to be noticed."""
    changed = copy.deepcopy(scenario)
    changed["expect"]["at"] = {"out": [-1]}
    changed["expect"]["outputs"] = {"out": [["no such key", "no such value", 0]]}
    assert set(differences(changed)) == {"outputs", "at"}


def test_a_defect_that_we_share_is_a_difference() -> None:
    """Failing like Kafka Streams where the docs say that we do not."""
    scenario = _named("a cached session store read backward before anything was put")
    scenario["events"][1]["value"] = "bfind not-a-number 100"
    assert list(differences(scenario)) == ["deviation"]


def test_a_stream_record_without_a_key_is_joined_with_none_at_once() -> None:
    """`left join of a stream and a versioned table with grace, record without a key`."""
    for handler in ("", ", continue"):
        seen = run(_named(f"stream left join versioned table with grace, null stream key{handler}"))
        assert seen["outputs"]["out"][0] == [None, "n+null", 301]
        assert seen["at"]["out"][0] == 5
        assert "error" not in seen


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
def test_windows_of_no_length_hold_the_records_of_one_millisecond(store: str) -> None:
    """`sliding windows with a time difference of 0`."""
    scenario = _named(f"sliding difference 0, {store}")
    held: dict[int, str] = {}
    expected = []
    for event in scenario["events"]:
        time = event["ts"]
        held[time] = held.get(time, "") + event["value"]
        expected.append([{"key": "k", "start": time, "end": time}, held[time], time])
    assert run(scenario)["outputs"]["out"] == expected


def test_a_store_in_which_nothing_is_has_no_sessions() -> None:
    """`backward_find_sessions` of a persistent session store with caching."""
    seen = run(_named("a cached session store read backward before anything was put"))
    assert [value for _, value, _ in seen["outputs"]["out"]] == ["[]", "[]", "ok", "[[k@3/5]=1]"]


def test_a_sliding_window_that_was_deleted_is_begun_anew() -> None:
    """`a sliding window that was deleted, looked at in the cache of a store from Stores`."""
    seen = run(_named("a sliding window that is deleted and looked at before the cache is flushed"))
    kept = [[{"key": "ab", "start": 169, "end": 181}, "1212", 181]]
    assert seen["outputs"]["out"] == kept


def test_sessions_are_found_that_could_begin_before_time_0() -> None:
    """`sessions with a gap of more than a minute in a cached store in RocksDB`."""
    scenario = _named("a session with a gap of more than a minute near time 0, with a cache")
    seen = run(scenario)
    plain = run({**scenario, "config": {}})
    assert seen["outputs"] == plain["outputs"]
    assert seen["stores"] == plain["stores"]


def _named(wanted: str) -> Scenario:
    (scenario,) = [each for each in scenarios() if each["name"] == wanted]
    return scenario
