"""After a commit nothing is held back, whichever nodes share stores: its offsets are true.

Method: random topologies whose nodes are connected by cached stores (`connected`), with a commit
after every record or two. After each commit every cache is clean, and what each changelog would
restore is what its store has. That the results are those of Kafka Streams is for `make fuzz`.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from typing import Any, Never

import pytest
from conformance.connected import connected_scenario
from conformance.vendored.interpret import Build, encode
from hypothesis import given, settings
from hypothesis import strategies as st
from support.batches.lazy_driver import LazyDriver
from support.effort import EXAMPLES

from millstream.processor.processor import Processor
from millstream.record import ValueAndTimestamp
from millstream.serdes import LONG, STRING, Serde
from millstream.testing import TopologyTestDriver
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.materialized import Materialized


def restored(driver: LazyDriver, store: str) -> dict[bytes, bytes]:
    """What the changelog of a store holds."""
    last = {r.key: r.value for r in driver.written().get(f"app-{store}-changelog", [])}
    return {key: value for key, value in last.items() if key is not None and value is not None}


def contents(store: Any) -> dict[bytes, bytes]:
    """What a store of strings or longs holds, serialized."""
    values = {
        key: value.value if isinstance(value, ValueAndTimestamp) else value
        for key, value in store.all()
    }
    return {
        serialized(STRING, key): serialized(LONG if isinstance(value, int) else STRING, value)
        for key, value in values.items()
    }


def serialized(serde: Serde[Any], value: Any) -> bytes:
    data = serde.serialize("", value)
    assert data is not None
    return data


@settings(max_examples=EXAMPLES, deadline=None)
@given(seed=st.integers(0, 1_000_000_000), commit_every=st.sampled_from([1, 2]))
def test_a_commit_leaves_nothing_behind(seed: int, commit_every: int) -> None:
    scenario = connected_scenario("commits", seed)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        build = Build(scenario)
        driver = LazyDriver(build.topology, build.config(folder), commit_every=commit_every)
        stack.callback(driver.close)
        for each in (event for event in scenario["events"] if "topic" in event):
            key, value = encode(each.get("key")), encode(each.get("value"))
            driver.feed(each["topic"], key, value, each["ts"])
            if driver.has_just_committed:
                assert driver.held_back() == []
                for name, store in driver.get_all_state_stores().items():
                    if f"app-{name}-changelog" in driver.written():
                        assert restored(driver, name) == contents(store), name


class Feeds(Processor[str, int, Never, Never]):
    """Puts what it is told of into the table that it is told by, one larger each time."""

    def __init__(self, most: int) -> None:
        self._most = most

    def init(self, context: Any) -> None:
        self._table = context.get_state_store("table")

    def process(self, record: Any) -> None:
        if record.value < self._most:
            self._table.put(record.key, ValueAndTimestamp(record.value + 1, record.timestamp))


def circular(most: int) -> TopologyTestDriver:
    builder = StreamsBuilder()
    table = builder.table(
        "in", key=STRING, value=LONG, store=Materialized("table", value=LONG, caching=True)
    )
    table.to_stream().to("out", key=STRING, value=LONG)
    table.to_stream().process(lambda: Feeds(most), stores=["table"])
    return TopologyTestDriver(builder.build())


def run_circle(most: int) -> tuple[list[int], int]:
    """The values handed on for one record, and the one in the store."""
    with circular(most) as driver:
        driver.create_input_topic("in", key=STRING, value=LONG).pipe_input("a", 1)
        written = driver.create_output_topic("out", key=STRING, value=LONG).read_values()
        return written, driver.get_state_store("table").get("a").value


def test_a_circle_that_comes_to_rest_is_followed_to_its_end() -> None:
    """A processor that changes the table which it reads is told of that in the same commit."""
    assert run_circle(5) == ([1, 2, 3, 4, 5], 5)


def test_a_circle_without_an_end_ends_the_commit_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The last change is written, though nobody is told of it, and the log says so."""
    written, stored = run_circle(1_000_000)
    assert stored == len(written) + 1
    assert "store table has changed 100 times" in caplog.text
