"""The console's document of an application with simulated events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from support.running.topologies.console_sample import THREADS, Sample, sample
from support.running.topologies.scored import ENTRY, EXIT, Scored


@pytest.fixture(scope="module")
def shown() -> Sample:
    return sample()


@pytest.fixture(scope="module")
def document(shown: Sample) -> Mapping[str, Any]:
    """As a browser receives it."""
    served = shown.streams._http_server._application
    served.console_state()
    shown.advance_second()
    found: dict[str, Any] = json.loads(orjson.dumps(served.console_state()))
    return found


def test_the_document_is_small(document: Mapping[str, Any]) -> None:
    """It is sent every second."""
    assert document["version"] == 1
    assert len(orjson.dumps(document)) < 40_000


def test_the_application(document: Mapping[str, Any]) -> None:
    application = document["application"]
    assert (application["id"], application["state"]) == ("shop", "RUNNING")
    assert application["started_ms"] < application["since_ms"] < document["now_ms"]
    assert document["totals"]["processed_total"] > 1_000_000
    assert document["totals"]["lag"] == 318 + 12_480
    assert len(document["totals"]["history"]) > 200


def test_threads_and_tasks(document: Mapping[str, Any]) -> None:
    """The threads and their tasks, with rates and hosts."""
    assert [each["name"] for each in document["threads"]] == THREADS
    third = document["threads"][2]
    assert (third["label"], third["host"], third["pid"]) == ("3", "worker-b.example.com", 977)
    assert [task["id"] for task in third["active"]] == ["0_2", "0_4", "2_1", "2_3"]
    assert third["standby"] == []
    assert all(task["records_per_s"] > 500 for task in third["active"])
    assert third["records_per_s"] == pytest.approx(
        sum(task["records_per_s"] for task in third["active"]), abs=1
    )
    (standby,) = document["threads"][0]["standby"]
    assert standby == {"id": "0_3", "state": "STANDBY", "records_per_s": None}


def test_the_topology(document: Mapping[str, Any]) -> None:
    """All nodes by sub-topology, all edges between existing nodes, and known numbers."""
    topology = document["topology"]
    assert [(part["id"], part["is_global"], part["tasks"]) for part in topology["parts"]] == [
        (0, False, 6),
        (1, True, 0),
        (2, False, 4),
    ]
    kinds = {each["name"]: each["kind"] for each in topology["topics"]}
    assert kinds == {
        "customers": "input",
        "orders": "input",
        "products": "input",
        "customer-counts": "output",
        "orders-by-name": "output",
        "sold-by-hour": "output",
        "shop-sold-by-hour-repartition": "internal",
    }
    nodes = {node["id"]: node for part in topology["parts"] for node in part["nodes"]}
    places = set(nodes) | {each["id"] for each in topology["topics"]}
    assert all({edge["source"], edge["target"]} <= places for edge in topology["edges"])
    titles = [node["title"] for node in nodes.values()]
    assert {"filter", "join table", "count", "windowed count", "drop null keys"} <= set(titles)
    read = {edge["source"]: edge for edge in topology["edges"] if edge["kind"] == "read"}
    assert read["topic:orders"]["lag"] == 318
    assert read["topic:orders"]["records_total"] > 0
    # Records read by a global store are not counted.
    assert read["topic:products"]["records_per_s"] is None


def test_stores(document: Mapping[str, Any]) -> None:
    """Their types, locations and sizes."""
    stores = {each["name"]: each for each in document["stores"]}
    assert list(stores) == ["customers", "orders-by-customer", "products", "sold-by-hour"]
    hours = stores["sold-by-hour"]
    assert (hours["form"], hours["timestamped"], hours["persistent"]) == ("window", True, True)
    assert (hours["window_ms"], hours["key"], hours["value"]) == (3_600_000, "STRING", "LONG")
    assert hours["changelog"] == "shop-sold-by-hour-changelog"
    assert (hours["entries"], hours["disk_bytes"]) == (2_901_118, 214_000_000)
    assert (stores["products"]["is_global"], stores["products"]["subtopology"]) == (True, None)
    assert not stores["orders-by-customer"]["persistent"]


def test_the_event_log(document: Mapping[str, Any]) -> None:
    """Restorations, rebalances and errors in the event log."""
    (failure,) = document["failures"]
    assert (failure["task"], failure["offset"], failure["over"]) == ("0_4", 1_204_311, True)
    assert failure["steps"][-1]["text"].startswith("RUNNING")
    assert [each["number"] for each in document["rebalances"]] == [1, 2, 3]
    assert document["rebalances"][-1]["after"][THREADS[2]]["active"] == ["0_2", "0_4", "2_1", "2_3"]
    going = [each for each in document["restores"] if each["state"] == "running"]
    assert {each["kind"] for each in going} == {"active", "standby"}
    assert document["subscriptions"] == []


def test_dead_letters(document: Mapping[str, Any]) -> None:
    """Totals of all threads, by node and kind of exception handler."""
    join, source = "KSTREAM-JOIN-0000000006", "KSTREAM-SOURCE-0000000004"
    topic = "dead-letters"
    assert document["dead_letters"] == [
        {"node": join, "handler": "processing", "topic": topic, "records_total": 9.0},
        {"node": source, "handler": "deserialization", "topic": topic, "records_total": 3.0},
    ]
    assert document["totals"]["dead_letters_total"] == 12


def test_a_dataframe_function() -> None:
    """The progress of its query, in its sub-topology; its input and lag, at its topic."""
    scored = Scored()
    served = scored.streams._http_server._application

    def topology() -> Mapping[str, Any]:
        found: dict[str, Any] = json.loads(orjson.dumps(served.console_state()))
        return {**found["topology"], "totals": found["totals"]}

    shown = topology()
    parts = {(part["dataframe"] or {}).get("name"): part for part in shown["parts"]}
    assert set(parts) == {None, "score"}
    assert parts["score"]["dataframe"] == {
        "name": "score",
        "state": "running",
        "rows_total": 40_000,
        "rows_per_s": None,
        "batch": 7,
        "batch_ms": 840,
        "batch_rows_per_s": 12_500.0,
        "lag": 319,
        "restarts": 2,
    }
    assert parts["score"]["records_per_s"] is None
    lags = {each["name"]: each["lag"] for each in shown["topics"]}
    assert lags == {"payments": None, ENTRY: 319, "scores": None, EXIT: None}
    assert shown["totals"]["lag"] == 319
    (read,) = [edge for edge in shown["edges"] if edge["target"] == "dataframe:score"]
    assert (read["records_total"], read["lag"]) == (40_000, 319)


def test_a_dataframe_function_that_has_read_nothing_yet() -> None:
    """Before the first batch the document contains no invented numbers."""
    scored = Scored()
    served = scored.streams._http_server._application
    first = {"batch-id": -1, "rows-total": 0, "rows-rate": 0.0, "batch-duration-ms": 0}
    for state, numbers in (
        (None, {}),
        ("waiting", {**scored.numbers, **first, "state": "waiting"}),
    ):
        scored.numbers = numbers
        topology = json.loads(orjson.dumps(served.console_state()))["topology"]
        (query,) = [part["dataframe"] for part in topology["parts"] if part["dataframe"]]
        assert (query["state"], query["rows_total"]) == (state, 0)
        for unknown in ("batch", "batch_ms", "batch_rows_per_s", "lag"):
            assert query[unknown] is None
        (read,) = [edge for edge in topology["edges"] if edge["target"] == "dataframe:score"]
        assert read["records_per_s"] is None
