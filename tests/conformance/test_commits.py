"""A commit flushes everything, even if nodes share stores, so that its offsets are correct.

Method: random topologies with nodes that are connected by cached stores (`connected`) commit after
every one or two records. After each commit, every cache is clean, and each changelog restores to
the contents of its store. `make fuzz` compares the results with Kafka Streams.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from typing import Any, Never

import pytest
from conformance.generators.connected import connected_scenario
from conformance.vendored.interpret import Build, encode
from hypothesis import given, settings
from hypothesis import strategies as st
from support.batches.drivers import LazyDriver
from support.effort import EXAMPLES

from millstream.processor.processor import Processor
from millstream.record import ValueAndTimestamp
from millstream.serdes import LONG, STRING, Serde
from millstream.testing import TopologyTestDriver
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.materialized import Materialized


def restored(driver: LazyDriver, store: str) -> dict[bytes, bytes]:
    """The table of a store's changelog."""
    last = {r.key: r.value for r in driver.written().get(f"app-{store}-changelog", [])}
    return {key: value for key, value in last.items() if key is not None and value is not None}


def contents(store: Any) -> dict[bytes, bytes]:
    """The serialized contents of a store of strings or longs."""
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


@pytest.mark.extended
@settings(max_examples=EXAMPLES, deadline=None)
@given(seed=st.integers(0, 1_000_000_000), commit_every=st.sampled_from([1, 2]))
def test_a_commit_flushes_all_caches(seed: int, commit_every: int) -> None:
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
                assert driver.dirty_stores() == []
                for name, store in driver.get_all_state_stores().items():
                    if f"app-{name}-changelog" in driver.written():
                        assert restored(driver, name) == contents(store), name


class Incrementing(Processor[str, int, Never, Never]):
    """Writes each update of the table back to the table, incremented."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum

    def init(self, context: Any) -> None:
        self._table = context.get_state_store("table")

    def process(self, record: Any) -> None:
        if record.value < self._maximum:
            self._table.put(record.key, ValueAndTimestamp(record.value + 1, record.timestamp))


def cyclic_topology(maximum: int) -> TopologyTestDriver:
    builder = StreamsBuilder()
    table = builder.table(
        "in", key=STRING, value=LONG, store=Materialized("table", value=LONG, caching=True)
    )
    table.to_stream().to("out", key=STRING, value=LONG)
    table.to_stream().process(lambda: Incrementing(maximum), stores=["table"])
    return TopologyTestDriver(builder.build())


def run_cycle(maximum: int) -> tuple[list[int], int]:
    """The emitted values for one record, and the final value in the store."""
    with cyclic_topology(maximum) as driver:
        driver.create_input_topic("in", key=STRING, value=LONG).pipe_input("a", 1)
        written = driver.create_output_topic("out", key=STRING, value=LONG).read_values()
        return written, driver.get_state_store("table").get("a").value


def test_a_finite_update_cycle_is_completed_within_a_commit() -> None:
    """A processor that changes its input table receives the change in the same commit."""
    assert run_cycle(5) == ([1, 2, 3, 4, 5], 5)


def test_an_infinite_update_cycle_does_not_block_the_commit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The last change is written but not forwarded, and a warning is logged."""
    written, stored = run_cycle(1_000_000)
    assert stored == len(written) + 1
    assert "store table changed 100 times" in caplog.text
