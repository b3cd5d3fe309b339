"""What librdkafka reported, however confluent-kafka and Python have passed it on."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from millstream.errors import TaskMigratedError
from millstream.kafka.data.producer_errors import migrated_error, reported_error

FENCED = KafkaError(KafkaError._FENCED, "another one is there", fatal=True)


def interrupted(times: int) -> SystemError:
    """As Python passes on what callbacks ran into."""
    raised: BaseException = KafkaException(FENCED)
    for _ in range(times):
        outer = SystemError("<built-in method ...> returned a result with an exception set")
        outer.__cause__ = raised
        raised = outer
    assert isinstance(raised, SystemError)
    return raised


@pytest.mark.parametrize("raised", [KafkaException(FENCED), interrupted(1), interrupted(3)])
def test_what_callbacks_ran_into_is_found(raised: BaseException) -> None:
    assert reported_error(raised) is FENCED


def test_what_python_has_forgotten_is_a_fatal_error_still() -> None:
    """Hunts for a thread that dies of a SystemError, where it would begin again."""
    raised = SystemError(
        "<method 'flush' of 'cimpl.Producer' objects> returned NULL without setting an exception"
    )
    error = reported_error(raised)
    assert (error.name(), error.fatal()) == ("_FATAL", True)
    told = migrated_error(error, "Flushing")
    assert isinstance(told, TaskMigratedError)
    assert "a fatal error, which the log tells" in told.message


def test_what_librdkafka_has_not_reported_is_raised() -> None:
    raised = SystemError("bad argument to internal function")
    with pytest.raises(SystemError) as seen:
        reported_error(raised)
    assert seen.value is raised
