"""Errors at run time contain the line of the program that declared the failed node."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from millstream import (
    Processor,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    Topology,
)
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

Declare = Callable[[StreamsBuilder, Any], Any]


class Failing(Processor[Any, Any, Any, Any]):
    """Fails in one of its methods."""

    def __init__(self, method: str) -> None:
        self.method = method

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(timedelta(seconds=1), PunctuationType.STREAM_TIME, self.punctuate)
        self._fail("init")

    def process(self, record: Record[Any, Any]) -> None:
        self._fail("process")

    def punctuate(self, time_ms: int) -> None:
        self._fail("punctuate")

    def close(self) -> None:
        """Never fails."""

    def _fail(self, current: str) -> None:
        if current == self.method:
            raise ValueError(current)


class FailingUpdater(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        raise ValueError("not filled")


def broken(*arguments: Any) -> Any:
    raise ValueError("broken")


def read(builder: StreamsBuilder, topic: str, **options: Any) -> Any:
    return builder.stream(topic, key=STRING, value=STRING, **options)


STORE = Stores.key_value_builder(Stores.in_memory_key_value("copy"), STRING, STRING)

#: Code that fails, declared in one line, and the topics with records that make it fail.
FAILING: dict[str, tuple[Declare, list[str]]] = {
    "mapper": (lambda b, s: s.map_values(broken), ["in"]),
    "aggregator": (lambda b, s: s.group_by_key().reduce(broken), ["in", "in"]),
    "table": (lambda b, s: s.to_table().filter(broken), ["in"]),
    "joiner": (lambda b, s: s.join(b.table("t", key=STRING, value=STRING), broken), ["t", "in"]),
    "sink": (lambda b, s: s.to("out", value=LONG), ["in"]),
    "topic": (lambda b, s: s.to(broken), ["in"]),
    "partitioner": (lambda b, s: s.to("out", partitioner=broken), ["in"]),
    "init": (lambda b, s: s.process(lambda: Failing("init")), []),
    "process": (lambda b, s: s.process(lambda: Failing("process")), ["in"]),
    "punctuate": (lambda b, s: s.process(lambda: Failing("punctuate")), ["in"]),
    "reader": (lambda b, s: b.stream("longs", key=STRING, value=LONG), ["longs"]),
    "extractor": (lambda b, s: b.stream("odd", timestamp_extractor=lambda r, t: 1.5), ["odd"]),  # type: ignore[arg-type,return-value]
    "global store": (lambda b, s: b.add_global_store(STORE, "all", FailingUpdater), ["all"]),
    "init for a global store": (
        lambda b, s: b.add_global_store(STORE, "all", lambda: Failing("")),
        [],
    ),
}


def run(topology: Topology, config: StreamsConfig, topics: list[str]) -> None:
    """Pipe a record into each topic."""
    with TopologyTestDriver(topology, config) as driver:
        for topic in topics:
            inputs = driver.create_input_topic(topic, key=STRING, value=STRING)
            inputs.pipe_input("k", "v", timestamp=5_000)


@pytest.mark.parametrize("case", FAILING)
def test_error_contains_the_line_of_the_program(case: str) -> None:
    """Also after the error was sent from a worker to the driver."""
    declare, topics = FAILING[case]
    builder = StreamsBuilder()
    declare(builder, read(builder, "in"))
    config = StreamsConfig(
        application_id="app",
        bootstrap_servers="not-used:9092",
        default_key_serde=STRING,
        default_value_serde=STRING,
    )
    with pytest.raises(StreamsError) as raised:
        run(builder.build(), config, topics)
    line = inspect.getsourcelines(declare)[1]
    assert (raised.value.declared_at or "").endswith(f"test_error_locations.py:{line}")
    assert f"declared at {raised.value.declared_at}" in str(raised.value)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
