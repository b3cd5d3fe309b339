"""Minimizing differing scenarios."""

from __future__ import annotations

from typing import Any

from conformance.differences import minimized

SCENARIO: dict[str, Any] = {
    "name": "n",
    "group": "stateless",
    "config": {"optimize": "all", "dsl_store": "in_memory"},
    "topology": [
        {"id": "a", "op": "stream", "topic": "L"},
        {"id": "b", "op": "stream", "topic": "R"},
        {"id": "c", "op": "map_values", "from": "a", "value": "v|upper"},
        {"id": "d", "op": "merge", "from": ["c", "b"]},
        {"id": "e", "op": "to", "from": "d", "topic": "out"},
        {"id": "f", "op": "foreach", "from": "b"},
    ],
    "events": [
        {"topic": "LR"[i % 2], "key": "k", "value": str(i), "ts": i, "headers": [["h", "1"]]}
        for i in range(20)
    ],
    "expect": {"anything": True},
}


def test_minimizing_removes_irrelevant_parts() -> None:
    """Events, operations, settings and headers are removed."""

    def differs(scenario: dict[str, Any]) -> bool:
        known = {operation["id"] for operation in scenario["topology"]}
        parents = [p for op in scenario["topology"] for p in [op.get("from", [])] if p]
        flat = [p for each in parents for p in ([each] if isinstance(each, str) else each)]
        assert known.issuperset(flat)
        values = [event["value"] for event in scenario["events"]]
        return "6" in values and any(op["op"] == "to" for op in scenario["topology"])

    small = minimized(SCENARIO, differs)
    assert [event["value"] for event in small["events"]] == ["6"]
    assert "headers" not in small["events"][0]
    assert [operation["op"] for operation in small["topology"]] == ["stream", "to"]
    assert small["topology"][1]["from"] == small["topology"][0]["id"] == "a"
    assert small["config"] == {}
    assert "expect" not in small


def test_minimizing_stops_after_the_maximum_of_trials() -> None:
    """The smallest scenario found so far is returned."""
    trials: list[int] = []

    def differs(scenario: dict[str, Any]) -> bool:
        trials.append(len(scenario["events"]))
        return len(scenario["events"]) == 10

    assert len(minimized(SCENARIO, differs, max_trials=25)["events"]) == 10
    assert len(trials) == 25
