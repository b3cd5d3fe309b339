"""Defects of Kafka Streams: which differences they excuse, and Millstream's results."""

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

WITH_DEFECT = [scenario for scenario in scenarios() if deviation(scenario) is not None]
DOCUMENTED = Path(__file__).parents[2] / "docs" / "differences.md"


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.row)
def test_each_defect_is_documented_and_recorded(defect: Defect) -> None:
    """Every excused defect is documented and occurs in a recording."""
    assert f"\n| {defect.row}" in DOCUMENTED.read_text(encoding="utf-8")
    assert any(met.defect == defect for scenario in WITH_DEFECT if (met := deviation(scenario)))


@pytest.mark.parametrize("scenario", WITH_DEFECT, ids=name)
def test_the_same_error_from_elsewhere_is_not_excused(scenario: Scenario) -> None:
    """A defect is identified by its calls, since a bug of Millstream may raise the same error."""
    changed = copy.deepcopy(scenario)
    expected = changed["expect"]
    for error in [
        *expected.get("handled", []),
        *([expected["error"]] if "error" in expected else []),
    ]:
        error["thrown"] = ["ThreadCache.range"]
    assert deviation(changed) is None
    assert differences(changed) != {}


@pytest.mark.parametrize(
    "scenario", [each for each in WITH_DEFECT if before_defect(each)], ids=name
)
def test_events_before_the_defect_are_compared(scenario: Scenario) -> None:
    """Method: change the expected outputs before the failing event."""
    changed = copy.deepcopy(scenario)
    changed["expect"]["at"] = {"out": [-1]}
    changed["expect"]["outputs"] = {"out": [["no such key", "no such value", 0]]}
    assert set(differences(changed)) == {"outputs", "at"}


def test_a_shared_defect_is_a_difference() -> None:
    """The documentation promises that Millstream does not have the defect."""
    scenario = _named("a cached session store read backward before anything was put")
    scenario["events"][1]["value"] = "bfind not-a-number 100"
    assert list(differences(scenario)) == ["deviation"]


def test_a_stream_record_without_a_key_is_joined_with_none_immediately() -> None:
    """`left join of a stream and a versioned table with grace, record without a key`."""
    for handler in ("", ", continue"):
        result = run(
            _named(f"stream left join versioned table with grace, null stream key{handler}")
        )
        assert result["outputs"]["out"][0] == [None, "n+null", 301]
        assert result["at"]["out"][0] == 5
        assert "error" not in result


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
def test_zero_length_windows_contain_one_millisecond(store: str) -> None:
    """`sliding windows with a time difference of 0`."""
    scenario = _named(f"sliding difference 0, {store}")
    values: dict[int, str] = {}
    expected = []
    for event in scenario["events"]:
        time = event["ts"]
        values[time] = values.get(time, "") + event["value"]
        expected.append([{"key": "k", "start": time, "end": time}, values[time], time])
    assert run(scenario)["outputs"]["out"] == expected


def test_an_empty_store_has_no_sessions() -> None:
    """`backward_find_sessions` of a persistent session store with caching."""
    result = run(_named("a cached session store read backward before anything was put"))
    assert [value for _, value, _ in result["outputs"]["out"]] == ["[]", "[]", "ok", "[[k@3/5]=1]"]


def test_a_deleted_sliding_window_starts_over() -> None:
    """`reading a deleted sliding window from the cache of a store from Stores`."""
    result = run(
        _named("a sliding window that is deleted and looked at before the cache is flushed")
    )
    kept = [[{"key": "ab", "start": 169, "end": 181}, "1212", 181]]
    assert result["outputs"]["out"] == kept


def test_sessions_whose_gap_extends_before_time_0_are_found() -> None:
    """`sessions with a gap of more than a minute in a cached store in RocksDB`."""
    scenario = _named("a session with a gap of more than a minute near time 0, with a cache")
    result = run(scenario)
    plain = run({**scenario, "config": {}})
    assert result["outputs"] == plain["outputs"]
    assert result["stores"] == plain["stores"]


def _named(name: str) -> Scenario:
    (scenario,) = [each for each in scenarios() if each["name"] == name]
    return scenario
