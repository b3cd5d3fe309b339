"""Who answers for records that fail: the handlers, and what they may not be asked about."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from millstream.clock import ManualClock
from millstream.errors import (
    AccessDeniedError,
    BrokerUnavailableError,
    ProcessingError,
    ProductionError,
    StreamsError,
)
from millstream.operators.batch import Batch, Origin
from millstream.processor.handlers import (
    CONTINUE,
    FAIL,
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
    SourceRecord,
)
from millstream.processor.handlers import ErrorContext as Context
from millstream.record import Record, TaskId, TopicPartition
from millstream.runtime.task.node_context import Dropped, NodeContext, SinkErrors, SourceErrors
from millstream.state.engine_failures import EngineFailures

TASK = TaskId(0, 1)
H = (("h", b"1"),)


def batch() -> Batch:
    origin = Origin(TopicPartition("in", 1), [7, 8], [(), H])
    return Batch(["a", "b"], [1, 2], [10, 20], range(2), origin)


def context(
    handler: Any, drops: Dropped | None = None, failures: EngineFailures | None = None
) -> NodeContext:
    drops = drops or Dropped(TASK)
    edges: Any = None
    stores = {"s": "store"}
    return NodeContext(
        "node", TASK, ManualClock(), edges, stores, handler, drops, failures=failures
    )


def test_a_handler_is_told_the_record_and_its_place() -> None:
    asked: list[Any] = []
    drops = Dropped(TASK)

    def handler(*arguments: Any) -> Any:
        asked.append(arguments)
        return CONTINUE

    error = ValueError("no")
    context(handler, drops).failed(batch(), 1, error)
    assert asked == [
        (Context("in", 1, 8, 20, H, "node", TASK), Record("b", 2, 20, H), error),
    ]
    assert drops.total == 1


@pytest.mark.parametrize("answer", [FAIL, None, "continue", True, ValueError("handler")])
def test_anything_but_continue_means_fail(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Also a handler that fails itself; what it raised is in the log, the user's error is told."""
    drops = Dropped(TASK)

    def handler(*arguments: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    error = ValueError("user code")
    with caplog.at_level(logging.ERROR), pytest.raises(ProcessingError) as raised:
        context(handler, drops).failed(batch(), 0, error)
    assert raised.value.__cause__ is error
    assert (raised.value.topic, raised.value.offset, raised.value.node) == ("in", 7, "node")
    assert drops.total == 0
    assert bool(caplog.records) is (answer is not FAIL)


def _never(*arguments: Any) -> Any:
    raise AssertionError("must not be called")


def test_an_answer_of_a_node_downstream_is_final() -> None:
    """It passes through the user code of nodes upstream, within calls of forward()."""
    error = ProcessingError("answered further down")
    with pytest.raises(ProcessingError) as raised:
        context(_never).failed(batch(), 0, error)
    assert raised.value is error


@pytest.mark.parametrize("engines", [AccessDeniedError("no"), OSError("full"), KeyError("bug")])
@pytest.mark.parametrize("is_shared", [False, True])
def test_no_handler_is_called_where_the_engine_has_failed(
    engines: Exception, is_shared: bool
) -> None:
    """Whatever user code has made of the error. Detects lists of kinds of errors."""
    shared = EngineFailures()
    failures = EngineFailures(shared)
    (shared if is_shared else failures).note(engines)
    with pytest.raises(type(engines)) as raised:
        context(_never, failures=failures).failed(batch(), 0, ValueError("wrapped"))
    assert raised.value is engines


@pytest.mark.parametrize("kind", [AccessDeniedError, BrokerUnavailableError, ProductionError])
def test_what_user_code_raises_itself_is_its_failure(kind: type[StreamsError]) -> None:
    """It may use clients of its own, for example a TaskProducer."""
    drops = Dropped(TASK)
    context(lambda *_: CONTINUE, drops).failed(batch(), 0, kind("of another cluster"))
    assert drops.total == 1


def test_only_the_failing_handler_promises_to_fail() -> None:
    assert not context(LogAndFailProcessingExceptionHandler()).may_continue
    assert context(LogAndContinueProcessingExceptionHandler()).may_continue
    assert context(lambda *_: FAIL).may_continue


def test_a_store_that_is_not_connected_is_not_given() -> None:
    here = context(None)
    assert here.store("s") == "store"
    with pytest.raises(StreamsError, match="no access to store 't'"):
        here.store("t")


def test_dropped_records_are_counted_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    drops = Dropped(TASK)
    with caplog.at_level(logging.WARNING):
        context(None, drops).dropped(3, "their key is null")
    assert drops.total == 3
    assert ["node" in caplog.text, "0_1" in caplog.text, len(caplog.records)] == [True, True, 1]


def test_late_records_are_logged_as_records_and_measured_as_windows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log names both numbers; Kafka Streams' metric counts each window."""
    drops = Dropped(TASK)
    with caplog.at_level(logging.WARNING):
        context(None, drops).dropped(2, "they are late", 5)
        context(None, drops).dropped(1, "their key is null")
    assert drops.total == 6
    assert [each.getMessage().partition("node: ")[2] for each in caplog.records] == [
        "2 records not counted in 5 windows: they are late",
        "1 record dropped: their key is null",
    ]


@pytest.mark.parametrize(
    ("handler", "goes_on"),
    [(LogAndFailExceptionHandler(), False), (LogAndContinueExceptionHandler(), True)],
)
def test_unreadable_records(handler: Any, goes_on: bool) -> None:
    drops = Dropped(TASK)
    record = SourceRecord("in", 1, 7, 10, (), b"k", b"v")
    errors = SourceErrors(handler, drops, "source")
    assert errors.undecodable(Context.of(record, "source", TASK), record, ValueError()) is goes_on
    assert drops.total == int(goes_on)
    errors.dropped(2, "negative times")
    assert drops.total == 2 + int(goes_on)


@pytest.mark.parametrize(
    ("handler", "goes_on"),
    [
        (None, False),
        (LogAndFailProcessingExceptionHandler(), False),
        (LogAndContinueProcessingExceptionHandler(), True),
    ],
)
def test_unwritable_records(handler: Any, goes_on: bool) -> None:
    """Behind a source nobody is asked: follows Kafka Streams."""
    drops = Dropped(TASK)
    assert SinkErrors(handler, drops, "sink", TASK).unwritable(batch(), 0, ValueError()) is goes_on
    assert drops.total == int(goes_on)
