"""Delivery reports: the first failure is kept, and so are the last acknowledged offsets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import KafkaError, Message

from millstream.errors import (
    BrokerUnavailableError,
    ProductionError,
    StreamsError,
    TaskMigratedError,
)
from millstream.kafka.clients.delivery import DeliveryTracker
from millstream.kafka.clients.producer_errors import Changelog, delivery_error
from millstream.record import TaskId, TopicPartition

PLACE = TopicPartition("log", 3)


def acked(offset: int) -> Message:
    return Message(topic="log", partition=3, offset=offset)


def test_the_last_acknowledged_offset_is_kept() -> None:
    """Reports arrive in order."""
    deliveries = DeliveryTracker()
    report = deliveries.acknowledgements(PLACE)
    report(None, acked(5))
    report(None, acked(6))
    assert deliveries.acked_offsets() == {PLACE: 6}
    assert deliveries.acked_offsets() == {PLACE: 6}


def test_an_unknown_offset_does_not_replace_the_last_one() -> None:
    """The record was written, but its offset is unknown, because the response was lost."""
    deliveries = DeliveryTracker()
    report = deliveries.acknowledgements(PLACE)
    report(None, acked(5))
    deliveries.acked_offsets()
    report(None, acked(-1001))
    assert deliveries.acked_offsets() == {PLACE: 5}


def test_the_first_failure_is_kept_with_its_partition() -> None:
    """Until failures are cleared, every call returns it, with the number of later failures."""
    deliveries = DeliveryTracker()
    report = deliveries.acknowledgements(PLACE)
    report(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Message(topic="log", partition=3))
    deliveries.failures_only(KafkaError(KafkaError._MSG_TIMED_OUT), Message(topic="x", partition=1))
    assert deliveries.failed == 2
    failures = [deliveries.first_failure() for _ in range(2)]
    for failure in failures:
        assert isinstance(failure, ProductionError)
        assert (failure.topic, failure.partition) == ("log", 3)
        assert "max.message.bytes" in str(failure)
        assert str(failure).count("Number of other failed records: 1.") == 1
    # A single exception object, raised repeatedly, would accumulate tracebacks.
    assert failures[0] is not failures[1]
    deliveries.clear_failures()
    assert deliveries.first_failure() is None
    assert deliveries.failed == 0


def test_the_error_of_a_failed_changelog_write_names_store_and_task() -> None:
    """With the topic alone, users would have to find its store."""
    deliveries = DeliveryTracker()
    deliveries.changelogs["log"] = Changelog("counts", 2)
    report = deliveries.acknowledgements(PLACE)
    report(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Message(topic="log", partition=3))
    failure = deliveries.first_failure()
    assert isinstance(failure, ProductionError)
    assert "A change of store 'counts' was not written to its changelog" in str(failure)
    assert (failure.task_id, failure.topic, failure.partition) == (TaskId(2, 3), "log", 3)


def test_unreported_failures() -> None:
    """Only unreported failures cause a warning at the end."""
    deliveries = DeliveryTracker()
    assert deliveries.unreported_failure() is None
    deliveries.fail(TaskMigratedError("gone"))
    assert deliveries.failed == 1
    assert isinstance(deliveries.first_failure(), TaskMigratedError)
    assert deliveries.unreported_failure() is None
    deliveries.clear_failures()
    deliveries.fail(TaskMigratedError("gone again"))
    assert "gone again" in str(deliveries.unreported_failure())


def test_reset_discards_failures_and_offsets() -> None:
    """After the tasks have been closed, late reports for them are ignored."""
    deliveries = DeliveryTracker()
    report = deliveries.acknowledgements(PLACE)
    report(None, acked(5))
    deliveries.acked_offsets()
    report(None, acked(6))
    report(KafkaError(KafkaError._MSG_TIMED_OUT), acked(-1001))
    deliveries.reset()
    assert (deliveries.acked_offsets(), deliveries.failed) == ({}, 0)
    report(None, acked(9))
    assert deliveries.acked_offsets() == {PLACE: 9}


def test_purged_records_are_not_failures() -> None:
    """They were dropped on purpose."""
    deliveries = DeliveryTracker()
    for code in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
        deliveries.failures_only(KafkaError(code), acked(-1001))
    assert deliveries.first_failure() is None


def test_a_fenced_producer_raises_task_migrated_error() -> None:
    """Another producer has taken over; the record is not the cause."""
    for code in (KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._FENCED):
        assert isinstance(delivery_error(KafkaError(code), "t", 0), TaskMigratedError)


class Handler:
    """A production exception handler that either fails or continues."""

    def __init__(self, *, fails: bool = False) -> None:
        self.indices: list[int] = []
        self._fails = fails

    def failed(
        self, index: int, error: ProductionError, *, transaction_lost: bool
    ) -> StreamsError | None:
        self.indices.append(index)
        return error if self._fails else None


def reject_third_record(
    deliveries: DeliveryTracker, handler: Handler, resend: Callable[[Sequence[int]], None]
) -> None:
    """A batch of four records, of which the broker rejects the third."""
    callbacks = deliveries.callbacks_with_handler(handler, range(4), resend)
    for index, callback in enumerate(callbacks):
        own = index == 2
        code = KafkaError.INVALID_RECORD if own else KafkaError._INVALID_DIFFERENT_RECORD
        callback(KafkaError(code), Message(topic="x", partition=1))


def test_the_other_records_of_a_rejected_batch_are_sent_again() -> None:
    """The handler decides about the rejected record. Its CONTINUE must not drop the others."""
    deliveries, handler, sent = DeliveryTracker(), Handler(), list[int]()
    reject_third_record(deliveries, handler, sent.extend)
    deliveries.decide()
    assert handler.indices == [2]
    assert sent == [0, 1, 3]
    assert deliveries.first_failure() is None
    assert not deliveries.undecided


def fail_batch(
    deliveries: DeliveryTracker,
    handler: Handler,
    resend: Callable[[Sequence[int]], None],
    code: int,
    messages: Sequence[Message],
) -> None:
    """Report one error for all records of a batch, as librdkafka does if one record is rejected."""
    callbacks = deliveries.callbacks_with_handler(handler, range(len(messages)), resend)
    for callback, message in zip(callbacks, messages, strict=True):
        callback(KafkaError(code), message)


def message(key: bytes | None = b"k", time: int = 5) -> Message:
    return Message(topic="x", partition=1, key=key, timestamp=(1, time))


def test_the_record_without_a_key_counts_as_rejected() -> None:
    deliveries, handler, sent = DeliveryTracker(), Handler(), list[int]()
    messages = [message(), message(key=None), message()]
    fail_batch(deliveries, handler, sent.extend, KafkaError.INVALID_RECORD, messages)
    deliveries.decide()
    assert (handler.indices, sent) == ([1], [0, 2])


def test_a_batch_may_contain_records_of_several_sends() -> None:
    deliveries, handler, sent = DeliveryTracker(), Handler(), list[int]()
    fail_batch(deliveries, handler, sent.extend, KafkaError.INVALID_RECORD, [message()])
    others: list[int] = []
    messages = [message(key=None), message()]
    fail_batch(deliveries, handler, others.extend, KafkaError.INVALID_RECORD, messages)
    deliveries.decide()
    assert (handler.indices, sent, others) == ([0], [0], [1])


def test_no_record_is_lost_when_the_handler_ends_the_process() -> None:
    class Exits(Handler):
        def failed(self, index: int, error: ProductionError, *, transaction_lost: bool) -> None:
            raise SystemExit

    deliveries = DeliveryTracker()
    messages = [message(), message()]
    fail_batch(deliveries, Exits(), list[int]().extend, KafkaError.INVALID_RECORD, messages)
    with pytest.raises(SystemExit):
        deliveries.decide()
    assert deliveries.undecided == 2


def test_all_records_are_rejected_if_no_cause_is_known() -> None:
    deliveries, handler, sent = DeliveryTracker(), Handler(), list[int]()
    messages = [message(), message()]
    fail_batch(deliveries, handler, sent.extend, KafkaError.INVALID_RECORD, messages)
    deliveries.decide()
    assert (handler.indices, sent) == ([0, 1], [])


@pytest.mark.parametrize(("times", "candidate"), [([5, 6, 9, 1], 3), ([5, 4, 99, 1], 2)])
def test_records_with_suspicious_timestamps_are_sent_alone(
    times: list[int], candidate: int
) -> None:
    """So that the broker's response identifies the rejected record. Not in a transaction."""
    steps: list[list[int] | str] = []

    def resend(indices: Sequence[int]) -> None:
        steps.append(list(indices))

    deliveries, handler = DeliveryTracker(drain=lambda: steps.append("drained")), Handler()
    messages = [message(time=each) for each in times]
    fail_batch(deliveries, handler, resend, KafkaError.INVALID_TIMESTAMP, messages)
    deliveries.decide()
    assert steps == [[0, 1], "drained", [candidate], "drained", [5 - candidate], "drained"]
    assert handler.indices == []
    # Sent alone.
    (callback,) = deliveries.callbacks_with_handler(handler, [2], resend)
    callback(KafkaError(KafkaError.INVALID_TIMESTAMP), messages[2])
    deliveries.decide()
    assert handler.indices == [2]
    in_transaction, handler = DeliveryTracker(transactional=True), Handler()
    fail_batch(in_transaction, handler, resend, KafkaError.INVALID_TIMESTAMP, messages)
    in_transaction.decide()
    assert handler.indices == [candidate]


def test_records_sent_alone_can_be_rejected() -> None:
    """Each then has the error of a single record, and is not retried forever."""
    deliveries, handler, sent = DeliveryTracker(), Handler(), list[int]()
    messages = [message(time=each) for each in (1, 2, 3)]

    def resend(indices: Sequence[int]) -> None:
        sent.extend(indices)
        callbacks = deliveries.callbacks_with_handler(handler, indices, resend)
        for index, callback in zip(indices, callbacks, strict=True):
            callback(KafkaError(KafkaError.INVALID_TIMESTAMP), messages[index])

    fail_batch(deliveries, handler, resend, KafkaError.INVALID_TIMESTAMP, messages)
    for _ in range(3):
        deliveries.decide()
    assert sorted(handler.indices) == [0, 1, 2]
    assert not deliveries.undecided
    assert len(sent) == 3


@pytest.mark.parametrize(("transactional", "fails"), [(True, True), (True, False), (False, True)])
def test_records_are_not_sent_again_needlessly(transactional: bool, fails: bool) -> None:
    """The work since the last commit is repeated, or the thread ends."""
    deliveries, handler = DeliveryTracker(transactional=transactional), Handler(fails=fails)
    sent: list[int] = []
    reject_third_record(deliveries, handler, sent.extend)
    deliveries.decide()
    assert (handler.indices, sent) == ([2], [])
    assert deliveries.failed == (4 if fails else 0)


def test_failed_resends_are_failures() -> None:
    """Otherwise a commit would skip them."""

    def resend(indices: Sequence[int]) -> None:
        raise BrokerUnavailableError("the queue is full")

    deliveries = DeliveryTracker()
    reject_third_record(deliveries, Handler(), resend)
    with pytest.raises(BrokerUnavailableError):
        deliveries.decide()
    assert deliveries.failed
    assert deliveries.first_failure() is not None


def test_the_reported_failure_is_that_of_the_rejected_record() -> None:
    """Not that of the first record of its batch; for records without a handler."""
    deliveries = DeliveryTracker()
    codes = [KafkaError._INVALID_DIFFERENT_RECORD, KafkaError.INVALID_RECORD]
    for code in (*codes, codes[0]):
        deliveries.record_failure(KafkaError(code), "x", 1)
    failure = deliveries.first_failure()
    assert failure is not None
    assert KafkaError(KafkaError.INVALID_RECORD).str() in failure.message
    assert "Number of other failed records: 2." in failure.message
