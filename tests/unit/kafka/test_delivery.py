"""Delivery reports: failures are kept, acknowledged offsets are the last certain ones."""

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
from millstream.kafka.data.delivery import Deliveries
from millstream.kafka.data.producer_errors import Changelog, delivery_error
from millstream.record import TaskId, TopicPartition

PLACE = TopicPartition("log", 3)


def acked(offset: int) -> Message:
    return Message(topic="log", partition=3, offset=offset)


def test_the_last_offset_counts() -> None:
    """Reports come in order."""
    deliveries = Deliveries()
    report = deliveries.acknowledgements(PLACE)
    report(None, acked(5))
    report(None, acked(6))
    assert deliveries.acked_offsets() == {PLACE: 6}
    assert deliveries.acked_offsets() == {PLACE: 6}


def test_a_lost_answer_leaves_the_earlier_offset() -> None:
    """The record is in the log, but nobody knows where: only a certain offset may be kept."""
    deliveries = Deliveries()
    report = deliveries.acknowledgements(PLACE)
    report(None, acked(5))
    deliveries.acked_offsets()
    report(None, acked(-1001))
    assert deliveries.acked_offsets() == {PLACE: 5}


def test_the_first_failure_is_kept_with_its_place() -> None:
    """Told whenever it is asked for, until it is forgotten; how many followed is said."""
    deliveries = Deliveries()
    report = deliveries.acknowledgements(PLACE)
    report(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Message(topic="log", partition=3))
    deliveries.failures_only(KafkaError(KafkaError._MSG_TIMED_OUT), Message(topic="x", partition=1))
    assert deliveries.failed == 2
    failures = [deliveries.tell_failure() for _ in range(2)]
    for failure in failures:
        assert isinstance(failure, ProductionError)
        assert (failure.topic, failure.partition) == ("log", 3)
        assert "max.message.bytes" in str(failure)
        assert str(failure).count("1 more") == 1
    # Raised as one object, they would gather each other's tracebacks.
    assert failures[0] is not failures[1]
    deliveries.forget_failures()
    assert deliveries.tell_failure() is None
    assert deliveries.failed == 0


def test_a_change_that_is_not_logged_names_its_store_and_task() -> None:
    """The topic alone leaves it to the reader to know whose changelog that is."""
    deliveries = Deliveries()
    deliveries.changelogs["log"] = Changelog("counts", 2)
    report = deliveries.acknowledgements(PLACE)
    report(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Message(topic="log", partition=3))
    failure = deliveries.tell_failure()
    assert isinstance(failure, ProductionError)
    assert "A change of store 'counts' was not written to its changelog" in str(failure)
    assert (failure.task_id, failure.topic, failure.partition) == (TaskId(2, 3), "log", 3)


def test_a_failure_nobody_heard_of() -> None:
    """Only that is worth a warning at the end."""
    deliveries = Deliveries()
    assert deliveries.untold_failure() is None
    deliveries.fail(TaskMigratedError("gone"))
    assert deliveries.failed == 1
    assert isinstance(deliveries.tell_failure(), TaskMigratedError)
    assert deliveries.untold_failure() is None
    deliveries.forget_failures()
    deliveries.fail(TaskMigratedError("gone again"))
    assert "gone again" in str(deliveries.untold_failure())


def test_forgotten_with_what_was_acknowledged() -> None:
    """The tasks are closed: nothing of theirs counts any more."""
    deliveries = Deliveries()
    report = deliveries.acknowledgements(PLACE)
    report(None, acked(5))
    deliveries.acked_offsets()
    report(None, acked(6))
    report(KafkaError(KafkaError._MSG_TIMED_OUT), acked(-1001))
    deliveries.forget()
    assert (deliveries.acked_offsets(), deliveries.failed) == ({}, 0)
    report(None, acked(9))
    assert deliveries.acked_offsets() == {PLACE: 9}


def test_purged_records_are_no_failures() -> None:
    """They were given up on purpose."""
    deliveries = Deliveries()
    for code in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
        deliveries.failures_only(KafkaError(code), acked(-1001))
    assert deliveries.tell_failure() is None


def test_fencing_is_migration() -> None:
    """Another producer's taking over is no fault of the record."""
    for code in (KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._FENCED):
        assert isinstance(delivery_error(KafkaError(code), "t", 0), TaskMigratedError)


class Asked:
    """Decides that the application goes on without each record it is asked about, or not."""

    def __init__(self, *, fails: bool = False) -> None:
        self.indices: list[int] = []
        self._fails = fails

    def failed(
        self, index: int, error: ProductionError, *, transaction_lost: bool
    ) -> StreamsError | None:
        self.indices.append(index)
        return error if self._fails else None


def rejected(deliveries: Deliveries, asked: Asked, again: Callable[[Sequence[int]], None]) -> None:
    """A batch of four records, of which the broker rejects the third."""
    callbacks = deliveries.watched(asked, range(4), again)
    for index, callback in enumerate(callbacks):
        own = index == 2
        code = KafkaError.INVALID_RECORD if own else KafkaError._INVALID_DIFFERENT_RECORD
        callback(KafkaError(code), Message(topic="x", partition=1))


def test_innocent_records_of_a_rejected_batch_are_sent_again() -> None:
    """The handler is asked about the rejected one: its CONTINUE must not lose the others."""
    deliveries, asked, sent = Deliveries(), Asked(), list[int]()
    rejected(deliveries, asked, sent.extend)
    deliveries.decide()
    assert asked.indices == [2]
    assert sent == [0, 1, 3]
    assert deliveries.tell_failure() is None
    assert not deliveries.undecided


def whole_batch(
    deliveries: Deliveries,
    asked: Asked,
    again: Callable[[Sequence[int]], None],
    code: int,
    messages: Sequence[Message],
) -> None:
    """librdkafka reports the error of the only rejected record for all of its batch."""
    callbacks = deliveries.watched(asked, range(len(messages)), again)
    for callback, message in zip(callbacks, messages, strict=True):
        callback(KafkaError(code), message)


def message(key: bytes | None = b"k", time: int = 5) -> Message:
    return Message(topic="x", partition=1, key=key, timestamp=(1, time))


def test_the_record_without_a_key_is_the_rejected_one() -> None:
    deliveries, asked, sent = Deliveries(), Asked(), list[int]()
    messages = [message(), message(key=None), message()]
    whole_batch(deliveries, asked, sent.extend, KafkaError.INVALID_RECORD, messages)
    deliveries.decide()
    assert (asked.indices, sent) == ([1], [0, 2])


def test_a_batch_may_have_records_of_several_sends() -> None:
    deliveries, asked, sent = Deliveries(), Asked(), list[int]()
    whole_batch(deliveries, asked, sent.extend, KafkaError.INVALID_RECORD, [message()])
    others: list[int] = []
    messages = [message(key=None), message()]
    whole_batch(deliveries, asked, others.extend, KafkaError.INVALID_RECORD, messages)
    deliveries.decide()
    assert (asked.indices, sent, others) == ([0], [0], [1])


def test_no_record_is_lost_when_the_handler_ends_the_process() -> None:
    class Exits(Asked):
        def failed(self, index: int, error: ProductionError, *, transaction_lost: bool) -> None:
            raise SystemExit

    deliveries = Deliveries()
    messages = [message(), message()]
    whole_batch(deliveries, Exits(), list[int]().extend, KafkaError.INVALID_RECORD, messages)
    with pytest.raises(SystemExit):
        deliveries.decide()
    assert deliveries.undecided == 2


def test_all_records_are_rejected_if_no_cause_is_known() -> None:
    deliveries, asked, sent = Deliveries(), Asked(), list[int]()
    messages = [message(), message()]
    whole_batch(deliveries, asked, sent.extend, KafkaError.INVALID_RECORD, messages)
    deliveries.decide()
    assert (asked.indices, sent) == ([0, 1], [])


@pytest.mark.parametrize(("times", "likelier"), [([5, 6, 9, 1], 3), ([5, 4, 99, 1], 2)])
def test_one_of_two_times_is_the_rejected_one(times: list[int], likelier: int) -> None:
    """Each is sent in a batch of its own, so that the broker says which; not in a transaction."""
    steps: list[list[int] | str] = []

    def again(indices: Sequence[int]) -> None:
        steps.append(list(indices))

    deliveries, asked = Deliveries(drain=lambda: steps.append("drained")), Asked()
    messages = [message(time=each) for each in times]
    whole_batch(deliveries, asked, again, KafkaError.INVALID_TIMESTAMP, messages)
    deliveries.decide()
    assert steps == [[0, 1], "drained", [likelier], "drained", [5 - likelier], "drained"]
    assert asked.indices == []
    # Now alone.
    (callback,) = deliveries.watched(asked, [2], again)
    callback(KafkaError(KafkaError.INVALID_TIMESTAMP), messages[2])
    deliveries.decide()
    assert asked.indices == [2]
    in_transaction, asked = Deliveries(transactional=True), Asked()
    whole_batch(in_transaction, asked, again, KafkaError.INVALID_TIMESTAMP, messages)
    in_transaction.decide()
    assert asked.indices == [likelier]


def test_each_record_may_be_rejected_in_a_batch_of_its_own() -> None:
    """Then each gets the error of a single record, and none must be tried for ever."""
    deliveries, asked, sent = Deliveries(), Asked(), list[int]()
    messages = [message(time=each) for each in (1, 2, 3)]

    def again(indices: Sequence[int]) -> None:
        sent.extend(indices)
        callbacks = deliveries.watched(asked, indices, again)
        for index, callback in zip(indices, callbacks, strict=True):
            callback(KafkaError(KafkaError.INVALID_TIMESTAMP), messages[index])

    whole_batch(deliveries, asked, again, KafkaError.INVALID_TIMESTAMP, messages)
    for _ in range(3):
        deliveries.decide()
    assert sorted(asked.indices) == [0, 1, 2]
    assert not deliveries.undecided
    assert len(sent) == 3


@pytest.mark.parametrize(("transactional", "fails"), [(True, True), (True, False), (False, True)])
def test_innocent_records_are_not_sent_for_nothing(transactional: bool, fails: bool) -> None:
    """What was done since the last commit is done again, or the thread ends."""
    deliveries, asked = Deliveries(transactional=transactional), Asked(fails=fails)
    sent: list[int] = []
    rejected(deliveries, asked, sent.extend)
    deliveries.decide()
    assert (asked.indices, sent) == ([2], [])
    assert deliveries.failed == (4 if fails else 0)


def test_records_that_cannot_be_sent_again_are_failures() -> None:
    """Else a commit would go past them."""

    def again(indices: Sequence[int]) -> None:
        raise BrokerUnavailableError("the queue is full")

    deliveries = Deliveries()
    rejected(deliveries, Asked(), again)
    with pytest.raises(BrokerUnavailableError):
        deliveries.decide()
    assert deliveries.failed
    assert deliveries.tell_failure() is not None


def test_the_rejected_record_is_the_failure_and_not_the_first_of_its_batch() -> None:
    """Of records without a watch."""
    deliveries = Deliveries()
    codes = [KafkaError._INVALID_DIFFERENT_RECORD, KafkaError.INVALID_RECORD]
    for code in (*codes, codes[0]):
        deliveries.lost(KafkaError(code), "x", 1)
    failure = deliveries.tell_failure()
    assert failure is not None
    assert KafkaError(KafkaError.INVALID_RECORD).str() in failure.message
    assert "2 more" in failure.message
