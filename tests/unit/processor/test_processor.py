"""What users are told who have forgotten something in a processor."""

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


class Forgetful(Processor[str, str, str, str]):
    def init(self, context: ProcessorContext[str, str]) -> None:
        """Does not call that of its base."""

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


class Misspelt(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("count")


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (
            Forgetful,
            r"Forgetful has no context yet.*begin with super\(\)\.init\(context\)\. Correct",
        ),
        (
            Misspelt,
            r"no access to store 'count'\. It has: counts, totals\. Did you mean 'counts'\? .* "
            r"connect it: name it in stores=",
        ),
    ],
)
def test_what_was_forgotten_is_named(kind: type[Processor[str, str, str, str]], told: str) -> None:
    builder = StreamsBuilder()
    for name in ("totals", "counts"):
        store = Stores.in_memory_key_value(name)
        builder.add_state_store(Stores.key_value_builder(store, STRING, LONG))
    words = builder.stream("in", key=STRING, value=STRING)
    words.process(kind, stores=["counts", "totals"]).to("out", key=STRING, value=STRING)
    with TopologyTestDriver(builder.build()) as driver:
        inputs = driver.create_input_topic("in", key=STRING, value=STRING)
        with pytest.raises(ProcessingError, match=told):
            inputs.pipe_input("k", "v")


class Careless(Processor[str, str, str, str]):
    """Calls what a record cannot be blamed for, each value another one."""

    def process(self, record: Record[str, str]) -> None:
        if record.value == "child":
            self.context.forward(record, child="nobody")
        elif record.value == "store":
            self.context.get_state_store("counts")
        else:
            raise KeyError(record.value)


@pytest.mark.parametrize(
    ("value", "may_be_left_out"), [("child", False), ("store", False), ("other", True)]
)
def test_a_wrong_program_is_not_to_be_skipped(value: str, may_be_left_out: bool) -> None:
    """A handler that leaves records out would drop every record for such a mistake."""
    builder = StreamsBuilder()
    words = builder.stream("in", key=STRING, value=STRING)
    words.process(Careless).to("out", key=STRING, value=STRING)
    with TopologyTestDriver(builder.build()) as driver:
        inputs = driver.create_input_topic("in", key=STRING, value=STRING)
        with pytest.raises(ProcessingError) as told:
            inputs.pipe_input("k", value)
    assert ("LogAndContinue" in str(told.value)) is may_be_left_out
    # The place stands once.
    assert str(told.value).count("node KSTREAM-PROCESSOR") == 1


@pytest.mark.parametrize("kind", [Processor, FixedKeyProcessor])
def test_other_attributes_are_missed_as_usual(kind: Any) -> None:
    assert not hasattr(kind(), "counts")
    with pytest.raises(AttributeError, match=f"'{kind.__name__}' object has no attribute 'counts'"):
        kind().counts  # noqa: B018
