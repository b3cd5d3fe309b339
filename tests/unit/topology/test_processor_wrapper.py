"""Wrappers around the processors of a program."""

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


class RecordingWrapper:
    """Records each value that it passes to the wrapped processor."""

    def __init__(self, name: str, wrapped: Any) -> None:
        self._name = name
        self._wrapped = wrapped

    def init(self, context: Any) -> None:
        self._wrapped.init(context)

    def process(self, record: Any) -> None:
        SEEN.append((self._name, record.value))
        self._wrapped.process(record)

    def close(self) -> None:
        self._wrapped.close()


def wrap_with_recording(name: str, supplier: Supplier) -> Supplier:
    return lambda: RecordingWrapper(name, supplier())


def store(name: str) -> StoreBuilder:
    return Stores.key_value_builder(Stores.in_memory_key_value(name), STRING, STRING)


class StoreAndForward(Processor[str, str, str, str]):
    @classmethod
    def stores(cls) -> list[StoreBuilder]:
        return [store("kept")]

    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("kept").put(record.key, record.value)
        self.context.forward(record)


class UpperCase(FixedKeyProcessor[str, str, str]):
    def process(self, record: FixedKeyRecord[str, str]) -> None:
        self.context.forward(record.with_value(record.value.upper()))


class Forward(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


class FillGlobalStore(Processor[str, str, None, None]):
    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("rates").put(record.key, record.value)


def build_with_dsl(wrapper: Callable[[str, Supplier], Supplier]) -> Topology:
    builder = StreamsBuilder(processor_wrapper=wrapper)
    builder.add_global_store(
        store("rates"), "rates", FillGlobalStore, key=STRING, value=STRING, name="fill"
    )
    (
        builder.stream("in", key=STRING, value=STRING)
        .process(StoreAndForward, name="keep")
        .process_values(UpperCase, name="shout")
        .to("out", key=STRING, value=STRING)
    )
    return builder.build()


def build_with_nodes(wrapper: Callable[[str, Supplier], Supplier]) -> Topology:
    topology = Topology(processor_wrapper=wrapper)
    topology.add_global_store(
        store("rates"), "read", "rates", "fill", FillGlobalStore, key=STRING, value=STRING
    )
    topology.add_source("source", "in", key=STRING, value=STRING)
    topology.add_processor("keep", StoreAndForward, "source")
    return topology.add_sink("sink", "out", "keep", key=STRING, value=STRING)


@pytest.mark.parametrize(
    ("make", "names"), [(build_with_dsl, ["keep", "shout"]), (build_with_nodes, ["keep"])]
)
def test_each_processor_is_wrapped_and_keeps_its_stores(
    make: Callable[[Any], Topology], names: list[str]
) -> None:
    """Once each, with the name of its node. Processors of global stores are included."""
    SEEN.clear()
    with TopologyTestDriver(make(wrap_with_recording)) as driver:
        driver.create_input_topic("rates", key=STRING, value=STRING).pipe_input("vat", "19")
        driver.create_input_topic("in", key=STRING, value=STRING).pipe_input("a", "b")
        assert driver.get_state_store("kept").get("a") == "b"
        assert driver.get_state_store("rates").get("vat") == "19"
    assert [("fill", "19"), *((name, "b") for name in names)] == SEEN


def test_processors_added_to_a_built_topology_are_wrapped_too() -> None:
    SEEN.clear()
    topology = build_with_dsl(wrap_with_recording)
    topology.add_processor("also", Forward, "keep")
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("in", key=STRING, value=STRING).pipe_input("a", "b")
    assert sorted(SEEN) == [("also", "b"), ("keep", "b"), ("shout", "b")]


def test_wrapper_can_add_stores() -> None:
    class WithAuditStore:
        def __init__(self, supplier: Supplier) -> None:
            self._supplier = supplier

        def stores(self) -> list[StoreBuilder]:
            return [store("kept"), store("audit")]

        def __call__(self) -> Any:
            return self._supplier()

    topology = build_with_nodes(
        lambda name, supplier: WithAuditStore(supplier) if name == "keep" else supplier
    )
    assert topology.nodes["keep"].stores == ("kept", "audit")  # type: ignore[union-attr]


def test_workers_receive_wrapped_processors_without_the_wrapper() -> None:
    """The wrapper may refer to objects that cannot be pickled."""
    unpicklable = (n for n in range(3))

    def wrapper(name: str, supplier: Supplier) -> Supplier:
        next(unpicklable, None)
        return supplier

    assert cloudpickle.loads(cloudpickle.dumps(build_with_nodes(wrapper))).nodes.keys()


def fail(name: str, supplier: Supplier) -> Supplier:
    raise KeyError(name)


SHARED = StoreAndForward()


@pytest.mark.parametrize("make", [build_with_dsl, build_with_nodes])
@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        (fail, "processor_wrapper failed: KeyError: 'fill'"),
        (lambda name, supplier: None, "The result of processor_wrapper cannot be used"),
        (lambda name, supplier: lambda: SHARED, "same processor twice"),
    ],
)
def test_error_of_a_wrapper_contains_the_location_of_the_processor(
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
def test_invalid_wrapper_is_rejected(kind: Any, wrapper: Any) -> None:
    with pytest.raises(TypeError, match="processor_wrapper"):
        kind(processor_wrapper=wrapper)
