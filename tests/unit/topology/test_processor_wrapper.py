"""What is put around the processors that a program brings, when its topology is built."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from millstream import (
    FixedKeyProcessor,
    FixedKeyRecord,
    Processor,
    Record,
    Stores,
    StreamsBuilder,
    Topology,
    TopologyError,
)
from millstream.serdes import STRING
from millstream.state.builders.store_builder import StoreBuilder
from millstream.testing import TopologyTestDriver

Supplier = Callable[[], Any]

SEEN: list[tuple[str, str]] = []


class Noting:
    """Tells of each record that it hands on to the processor inside."""

    def __init__(self, name: str, inside: Any) -> None:
        self._name = name
        self._inside = inside

    def init(self, context: Any) -> None:
        self._inside.init(context)

    def process(self, record: Any) -> None:
        SEEN.append((self._name, record.value))
        self._inside.process(record)

    def close(self) -> None:
        self._inside.close()


def noting(name: str, supplier: Supplier) -> Supplier:
    return lambda: Noting(name, supplier())


def store(name: str) -> StoreBuilder:
    return Stores.key_value_builder(Stores.in_memory_key_value(name), STRING, STRING)


class Keep(Processor[str, str, str, str]):
    @classmethod
    def stores(cls) -> list[StoreBuilder]:
        return [store("kept")]

    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("kept").put(record.key, record.value)
        self.context.forward(record)


class Shout(FixedKeyProcessor[str, str, str]):
    def process(self, record: FixedKeyRecord[str, str]) -> None:
        self.context.forward(record.with_value(record.value.upper()))


class Pass(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


class Fill(Processor[str, str, None, None]):
    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("rates").put(record.key, record.value)


def in_words(wrapper: Callable[[str, Supplier], Supplier]) -> Topology:
    builder = StreamsBuilder(processor_wrapper=wrapper)
    builder.add_global_store(store("rates"), "rates", Fill, key=STRING, value=STRING, name="fill")
    (
        builder.stream("in", key=STRING, value=STRING)
        .process(Keep, name="keep")
        .process_values(Shout, name="shout")
        .to("out", key=STRING, value=STRING)
    )
    return builder.build()


def by_nodes(wrapper: Callable[[str, Supplier], Supplier]) -> Topology:
    topology = Topology(processor_wrapper=wrapper)
    topology.add_global_store(
        store("rates"), "read", "rates", "fill", Fill, key=STRING, value=STRING
    )
    topology.add_source("source", "in", key=STRING, value=STRING)
    topology.add_processor("keep", Keep, "source")
    return topology.add_sink("sink", "out", "keep", key=STRING, value=STRING)


@pytest.mark.parametrize(("make", "names"), [(in_words, ["keep", "shout"]), (by_nodes, ["keep"])])
def test_each_processor_is_wrapped_and_keeps_its_stores(
    make: Callable[[Any], Topology], names: list[str]
) -> None:
    """Once each, under the name of its node, global stores' included."""
    SEEN.clear()
    with TopologyTestDriver(make(noting)) as driver:
        driver.create_input_topic("rates", key=STRING, value=STRING).pipe_input("vat", "19")
        driver.create_input_topic("in", key=STRING, value=STRING).pipe_input("a", "b")
        assert driver.get_state_store("kept").get("a") == "b"
        assert driver.get_state_store("rates").get("vat") == "19"
    assert [("fill", "19"), *((name, "b") for name in names)] == SEEN


def test_what_is_added_to_a_built_topology_is_wrapped_too() -> None:
    SEEN.clear()
    topology = in_words(noting)
    topology.add_processor("also", Pass, "keep")
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("in", key=STRING, value=STRING).pipe_input("a", "b")
    assert sorted(SEEN) == [("also", "b"), ("keep", "b"), ("shout", "b")]


def test_a_wrapper_may_bring_other_stores() -> None:
    class Other:
        def __init__(self, supplier: Supplier) -> None:
            self._supplier = supplier

        def stores(self) -> list[StoreBuilder]:
            return [store("kept"), store("audit")]

        def __call__(self) -> Any:
            return self._supplier()

    topology = by_nodes(lambda name, supplier: Other(supplier) if name == "keep" else supplier)
    assert topology.nodes["keep"].stores == ("kept", "audit")  # type: ignore[union-attr]


def test_workers_are_sent_what_is_wrapped_and_not_the_wrapper() -> None:
    """Which may hold what cannot travel."""
    unpicklable = (n for n in range(3))

    def wrapper(name: str, supplier: Supplier) -> Supplier:
        next(unpicklable, None)
        return supplier

    assert cloudpickle.loads(cloudpickle.dumps(by_nodes(wrapper))).nodes.keys()


def fails(name: str, supplier: Supplier) -> Supplier:
    raise KeyError(name)


SHARED = Keep()


@pytest.mark.parametrize("make", [in_words, by_nodes])
@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        (fails, "processor_wrapper failed: KeyError: 'fill'"),
        (lambda name, supplier: None, "What processor_wrapper gave cannot be used"),
        (lambda name, supplier: lambda: SHARED, "same one twice"),
    ],
)
def test_what_a_wrapper_does_wrong_is_told_at_the_place_of_the_processor(
    make: Callable[[Any], Topology], wrapper: Any, message: str
) -> None:
    with pytest.raises(TopologyError, match=re.escape(message)) as raised:
        make(wrapper)
    assert raised.value.node == "fill"
    assert "test_processor_wrapper.py" in str(raised.value.declared_at)


async def later(name: str, supplier: Supplier) -> Supplier:
    return supplier


@pytest.mark.parametrize("wrapper", [5, lambda: None, later])
@pytest.mark.parametrize("kind", [StreamsBuilder, Topology])
def test_what_cannot_wrap_is_refused(kind: Any, wrapper: Any) -> None:
    with pytest.raises(TypeError, match="processor_wrapper"):
        kind(processor_wrapper=wrapper)
