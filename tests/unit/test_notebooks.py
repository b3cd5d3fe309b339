"""The tables and drawings that notebooks show, as IPython requests them."""

from __future__ import annotations

from itertools import count
from typing import Any
from xml.etree import ElementTree

from support.running.topologies.console_sample import sample
from support.running.topologies.shop import shop

from millstream import StreamsBuilder, Topology
from millstream.html_tables import MAX_CELL, MAX_ROWS, html_table
from millstream.metrics.values import Metric, Metrics
from millstream.record import Record
from millstream.serdes import LONG, STRING
from millstream.state.queries.requests.position import Position
from millstream.state.queries.requests.query_results import (
    FailureReason,
    QueryResult,
    StateQueryResult,
)
from millstream.testing import TopologyTestDriver


def shown(value: Any) -> dict[str, str]:
    found: dict[str, str] = value._repr_mimebundle_(include=None, exclude=None)
    return found


def cells(value: Any) -> list[list[str]]:
    """The rows of a value's table, with its header."""
    table = ElementTree.fromstring(shown(value)["text/html"])
    return [[cell.text or "" for cell in row] for row in table.iter("tr")]


def test_topologies_are_drawings() -> None:
    """Text for a terminal, Mermaid for JupyterLab, SVG for other notebooks."""
    topology = shop()
    bundle = shown(topology)
    assert bundle["text/plain"] == repr(topology)
    assert bundle["text/vnd.mermaid"] == topology.describe().to_mermaid()
    assert ElementTree.fromstring(bundle["image/svg+xml"]).tag == "{http://www.w3.org/2000/svg}svg"
    description = shown(topology.describe())
    assert description == {**bundle, "text/plain": str(topology.describe())}


def test_topologies_beyond_the_limits_of_mermaid_are_only_shown_as_svg() -> None:
    topology = Topology()
    for number in range(251):
        topology.add_source(f"read-{number}", f"in-{number}")
        topology.add_sink(f"write-{number}", f"out-{number}", f"read-{number}")
    assert set(shown(topology)) == {"text/plain", "image/svg+xml"}


def test_output_records_are_a_table() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=LONG).map_values(str).to("out", value=STRING)
    with TopologyTestDriver(builder.build()) as driver:
        numbers = driver.create_input_topic("in", key=STRING, value=LONG)
        numbers.pipe_input("<a>", 1, timestamp=5, headers=[("h", b"x")])
        records = driver.create_output_topic("out", key=STRING, value=STRING).read_records()
    assert records == [Record("<a>", "1", 5, (("h", b"x"),))]
    assert cells(records) == [
        ["Key", "Value", "Timestamp", "Headers"],
        ["'<a>'", "'1'", "5", "(('h', b'x'),)"],
    ]
    assert shown(records)["text/plain"] == repr(records)


def test_query_results_are_tables() -> None:
    position = Position({"in": {0: 7}})
    missing = QueryResult(failure_reason=FailureReason.NOT_ACTIVE, failure_message="try <later>")
    results = StateQueryResult({0: QueryResult("<b>", position=position), 1: missing})
    assert cells(results) == [
        ["Partition", "Result", "Position"],
        ["0", "'<b>'", "Position({'in': {0: 7}})"],
        ["1", "NOT_ACTIVE: try <later>", "Position({})"],
    ]
    assert cells(results.partition_results[0]) == [
        ["Result", "'<b>'"],
        ["Position", "Position({'in': {0: 7}})"],
    ]
    assert cells(missing) == [["Failure", "NOT_ACTIVE: try <later>"]]
    everywhere = StateQueryResult({}, global_result=QueryResult(3))
    assert cells(everywhere)[1] == ["global", "3", "Position({})"]


def test_displayed_iterators_can_still_be_read() -> None:
    result = QueryResult(iter([("a", 1)]))
    assert cells(result) == [["Result", "iterator"]]
    assert list(result.result) == [("a", 1)]


def test_metrics_are_a_table() -> None:
    metrics = Metrics([Metric("process-total", {"thread-id": "t<1>", "task-id": "0_0"}, 3.0)])
    assert cells(metrics) == [
        ["Metric", "Labels", "Value"],
        ["process-total", "thread-id=t<1>, task-id=0_0", "3.0"],
    ]


def test_applications_are_a_table_of_their_threads() -> None:
    streams = sample().streams
    heads, *threads = cells(streams)
    assert heads == ["Thread", "State", "Active tasks", "Standby tasks", "Host"]
    assert threads[0][1:] == ["RUNNING", "0_0, 0_1, 2_0", "0_3", "worker-a.example.com"]
    assert len(threads) == 3
    assert "shop: RUNNING" in shown(streams)["text/html"]


def test_tables_are_bounded() -> None:
    """Also those of endless iterators and huge values."""
    rows = ([str(number), "x" * 1_000_000] for number in count())
    table = ElementTree.fromstring(html_table("many", ["n", "x"], rows))
    found = [[cell.text or "" for cell in row] for row in table.iter("tr")]
    assert len(found) == MAX_ROWS + 2
    assert found[-1] == ["…", "…"]
    assert len(found[1][1]) == MAX_CELL + 1
