"""Errors about mistakes in processors."""

from __future__ import annotations

from typing import Any

import pytest

from millstream import (
    FixedKeyProcessor,
    ProcessingError,
    Processor,
    ProcessorContext,
    Record,
    Stores,
    StreamsBuilder,
)
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver


class MissingSuperCall(Processor[str, str, str, str]):
    def init(self, context: ProcessorContext[str, str]) -> None:
        """Does not call the method of its base class."""

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


class MisspelledStore(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("count")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            MissingSuperCall,
            r"MissingSuperCall has no context yet.*start with super\(\)\.init\(context\)\. Fix",
        ),
        (
            MisspelledStore,
            r"no access to store 'count'\. Its stores: counts, totals\. Did you mean 'counts'\? .* "
            r"connect a store, name it in stores=",
        ),
    ],
)
def test_error_explains_the_mistake(
    kind: type[Processor[str, str, str, str]], message: str
) -> None:
    builder = StreamsBuilder()
    for name in ("totals", "counts"):
        store = Stores.in_memory_key_value(name)
        builder.add_state_store(Stores.key_value_builder(store, STRING, LONG))
    words = builder.stream("in", key=STRING, value=STRING)
    words.process(kind, stores=["counts", "totals"]).to("out", key=STRING, value=STRING)
    with TopologyTestDriver(builder.build()) as driver:
        inputs = driver.create_input_topic("in", key=STRING, value=STRING)
        with pytest.raises(ProcessingError, match=message):
            inputs.pipe_input("k", "v")


class InvalidCalls(Processor[str, str, str, str]):
    """Makes an invalid call, a different one for each value."""

    def process(self, record: Record[str, str]) -> None:
        if record.value == "child":
            self.context.forward(record, child="unknown")
        elif record.value == "store":
            self.context.get_state_store("counts")
        else:
            raise KeyError(record.value)


@pytest.mark.parametrize(
    ("value", "may_be_skipped"), [("child", False), ("store", False), ("other", True)]
)
def test_mistakes_of_the_program_cannot_be_skipped(value: str, may_be_skipped: bool) -> None:
    """A handler that skips records would drop every record because of such a mistake."""
    builder = StreamsBuilder()
    words = builder.stream("in", key=STRING, value=STRING)
    words.process(InvalidCalls).to("out", key=STRING, value=STRING)
    with TopologyTestDriver(builder.build()) as driver:
        inputs = driver.create_input_topic("in", key=STRING, value=STRING)
        with pytest.raises(ProcessingError) as raised:
            inputs.pipe_input("k", value)
    assert ("LogAndContinue" in str(raised.value)) is may_be_skipped
    # The message contains the location once.
    assert str(raised.value).count("node KSTREAM-PROCESSOR") == 1


@pytest.mark.parametrize("kind", [Processor, FixedKeyProcessor])
def test_other_missing_attributes_raise_as_usual(kind: Any) -> None:
    assert not hasattr(kind(), "counts")
    with pytest.raises(AttributeError, match=f"'{kind.__name__}' object has no attribute 'counts'"):
        kind().counts  # noqa: B018
