"""The tools of fuzzing: a scenario that differs becomes small and stays one that differs."""

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


def test_what_is_not_needed_goes() -> None:
    """Events, operations in the middle and at the ends, settings and headers are all left out."""

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


def test_it_comes_to_an_end() -> None:
    """The number of trials is limited, and the best so far is kept."""
    asked: list[int] = []

    def differs(scenario: dict[str, Any]) -> bool:
        asked.append(len(scenario["events"]))
        return len(scenario["events"]) == 10

    assert len(minimized(SCENARIO, differs, most_trials=25)["events"]) == 10
    assert len(asked) == 25
