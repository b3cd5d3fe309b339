"""Failed records: calls of the handlers, and failures for which there is no call."""

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
from millstream.operators.record_batch import Batch, Origin
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
from millstream.runtime.task.node_context import (
    DroppedRecords,
    NodeContext,
    SinkErrors,
    SourceErrors,
)
from millstream.state.engine_failures import EngineFailures

TASK = TaskId(0, 1)
H = (("h", b"1"),)


def batch() -> Batch:
    origin = Origin(TopicPartition("in", 1), [7, 8], [(), H])
    return Batch(["a", "b"], [1, 2], [10, 20], range(2), origin)


def context(
    handler: Any, drops: DroppedRecords | None = None, failures: EngineFailures | None = None
) -> NodeContext:
    drops = drops or DroppedRecords(TASK)
    edges: Any = None
    stores = {"s": "store"}
    return NodeContext(
        "node", TASK, ManualClock(), edges, stores, handler, drops, failures=failures
    )


def test_handler_receives_the_record_and_its_origin() -> None:
    calls: list[Any] = []
    drops = DroppedRecords(TASK)

    def handler(*arguments: Any) -> Any:
        calls.append(arguments)
        return CONTINUE

    error = ValueError("no")
    context(handler, drops).failed(batch(), 1, error)
    assert calls == [
        (Context("in", 1, 8, 20, H, "node", TASK), Record("b", 2, 20, H), error),
    ]
    assert drops.total == 1


@pytest.mark.parametrize("answer", [FAIL, None, "continue", True, ValueError("handler")])
def test_any_answer_except_continue_means_fail(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if the handler itself fails: its error is logged, and the user's error is raised."""
    drops = DroppedRecords(TASK)

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


def test_error_handled_by_a_node_downstream_is_final() -> None:
    """It passes through user code of nodes upstream, within calls of forward()."""
    error = ProcessingError("handled downstream")
    with pytest.raises(ProcessingError) as raised:
        context(_never).failed(batch(), 0, error)
    assert raised.value is error


@pytest.mark.parametrize(
    "engine_error", [AccessDeniedError("no"), OSError("full"), KeyError("bug")]
)
@pytest.mark.parametrize("is_shared", [False, True])
def test_no_handler_is_called_for_failures_of_the_engine(
    engine_error: Exception, is_shared: bool
) -> None:
    """However user code has wrapped the error. Detects lists of exception types."""
    shared = EngineFailures()
    failures = EngineFailures(shared)
    (shared if is_shared else failures).record(engine_error)
    with pytest.raises(type(engine_error)) as raised:
        context(_never, failures=failures).failed(batch(), 0, ValueError("wrapped"))
    assert raised.value is engine_error


@pytest.mark.parametrize("kind", [AccessDeniedError, BrokerUnavailableError, ProductionError])
def test_errors_that_user_code_raises_itself_are_its_failures(kind: type[StreamsError]) -> None:
    """User code can use its own Kafka clients, for example a TaskProducer."""
    drops = DroppedRecords(TASK)
    context(lambda *_: CONTINUE, drops).failed(batch(), 0, kind("of another cluster"))
    assert drops.total == 1


def test_only_the_failing_handler_never_continues() -> None:
    assert not context(LogAndFailProcessingExceptionHandler()).may_continue
    assert context(LogAndContinueProcessingExceptionHandler()).may_continue
    assert context(lambda *_: FAIL).may_continue


def test_unconnected_store_is_not_accessible() -> None:
    node_context = context(None)
    assert node_context.store("s") == "store"
    with pytest.raises(StreamsError, match="no access to store 't'"):
        node_context.store("t")


def test_dropped_records_are_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    drops = DroppedRecords(TASK)
    with caplog.at_level(logging.WARNING):
        context(None, drops).dropped(3, "their key is null")
    assert drops.total == 3
    assert ["node" in caplog.text, "0_1" in caplog.text, len(caplog.records)] == [True, True, 1]


def test_late_records_are_logged_as_records_and_counted_as_windows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log contains both numbers; the metric of Kafka Streams counts windows."""
    drops = DroppedRecords(TASK)
    with caplog.at_level(logging.WARNING):
        context(None, drops).dropped(2, "they are late", 5)
        context(None, drops).dropped(1, "their key is null")
    assert drops.total == 6
    assert [each.getMessage().partition("node: ")[2] for each in caplog.records] == [
        "2 records not counted in 5 windows: they are late",
        "1 record dropped: their key is null",
    ]


@pytest.mark.parametrize(
    ("handler", "continues"),
    [(LogAndFailExceptionHandler(), False), (LogAndContinueExceptionHandler(), True)],
)
def test_unreadable_records_are_skipped_or_raise(handler: Any, continues: bool) -> None:
    drops = DroppedRecords(TASK)
    record = SourceRecord("in", 1, 7, 10, (), b"k", b"v")
    errors = SourceErrors(handler, drops, "source")
    assert errors.undecodable(Context.of(record, "source", TASK), record, ValueError()) is continues
    assert drops.total == int(continues)
    errors.dropped(2, "negative times")
    assert drops.total == 2 + int(continues)


@pytest.mark.parametrize(
    ("handler", "continues"),
    [
        (None, False),
        (LogAndFailProcessingExceptionHandler(), False),
        (LogAndContinueProcessingExceptionHandler(), True),
    ],
)
def test_unwritable_records_are_dropped_or_raise(handler: Any, continues: bool) -> None:
    """Directly behind a source no handler is called, as in Kafka Streams."""
    drops = DroppedRecords(TASK)
    assert (
        SinkErrors(handler, drops, "sink", TASK).unwritable(batch(), 0, ValueError()) is continues
    )
    assert drops.total == int(continues)
