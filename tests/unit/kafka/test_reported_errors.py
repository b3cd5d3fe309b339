"""Errors reported by librdkafka, however confluent-kafka and Python pass them on."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from millstream.errors import TaskMigratedError
from millstream.kafka.clients.producer_errors import migrated_error, reported_error

FENCED = KafkaError(KafkaError._FENCED, "another one is there", fatal=True)


def wrapped_error(times: int) -> SystemError:
    """An exception raised in a callback, wrapped as Python wraps it."""
    raised: BaseException = KafkaException(FENCED)
    for _ in range(times):
        outer = SystemError("<built-in method ...> returned a result with an exception set")
        outer.__cause__ = raised
        raised = outer
    assert isinstance(raised, SystemError)
    return raised


@pytest.mark.parametrize("raised", [KafkaException(FENCED), wrapped_error(1), wrapped_error(3)])
def test_errors_of_callbacks_are_unwrapped(raised: BaseException) -> None:
    assert reported_error(raised) is FENCED


def test_a_system_error_without_a_cause_is_a_fatal_error() -> None:
    """Detects a thread that fails with a `SystemError` instead of rejoining."""
    raised = SystemError(
        "<method 'flush' of 'cimpl.Producer' objects> returned NULL without setting an exception"
    )
    error = reported_error(raised)
    assert (error.name(), error.fatal()) == ("_FATAL", True)
    migrated = migrated_error(error, "Flushing")
    assert isinstance(migrated, TaskMigratedError)
    assert "a fatal error; see the log" in migrated.message


def test_other_system_errors_are_raised() -> None:
    raised = SystemError("bad argument to internal function")
    with pytest.raises(SystemError) as seen:
        reported_error(raised)
    assert seen.value is raised
