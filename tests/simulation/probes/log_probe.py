"""Requests about logs, sent both to a real broker and to the simulated cluster through the
clients' protocols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol

from millstream.errors import OffsetOutOfRangeError, StreamsError
from millstream.kafka.clients.record_consumer import OFFSET_BEGINNING
from millstream.kafka.protocols import Admin, Consumer, Producer
from millstream.record import TopicPartition
from simulation.probes.group_probe import Answers

_TIMEOUT_MS: Final = 20_000
_POLL_MS: Final = 1_000
_POLLS: Final = 10


class Transaction(Protocol):
    """A producer that writes one transaction after another."""

    def write(self, place: TopicPartition, values: Sequence[bytes]) -> None: ...
    def end(self, *, commit: bool) -> None: ...


def _result_of(call: Callable[[], object]) -> str:
    try:
        return str(call())
    except StreamsError as error:
        return type(error).__name__


def _read(consumer: Consumer, place: TopicPartition, start: int) -> str:
    """Read from an offset to the current end."""
    consumer.assign({place: start}, _TIMEOUT_MS)
    values: list[Any] = []
    try:
        for _ in range(_POLLS):
            for columns in consumer.poll_columns(100, _POLL_MS).values():
                values += [
                    f"{offset}:{(value or b'').decode()}"
                    for offset, value in zip(columns.offsets, columns.values, strict=True)
                ]
            if consumer.at_end(place):
                break
        return f"{values}, then at {consumer.position(place)}, at end {consumer.at_end(place)}"
    except OffsetOutOfRangeError as error:
        return f"out of range: {error.offsets[place]}"
    finally:
        consumer.unassign([place])


def _write(producer: Producer, place: TopicPartition, values: Sequence[bytes]) -> None:
    times = [1] * len(values)
    producer.send_many(place.topic, place.partition, [None] * len(values), values, times)
    producer.flush(_TIMEOUT_MS)


def _wait(consumer: Consumer, future: Future[Any]) -> str:
    """Wait for a deletion and return its outcome. Polling advances simulated time."""
    for _ in range(_POLLS):
        if future.done():
            return "failed" if future.exception() is not None else "deleted"
        consumer.poll_columns(1, _POLL_MS)
    return "no answer"


def unknown_topics(admin: Admin, consumer: Consumer) -> Answers:
    """The answers for topics that do not exist."""
    nowhere = TopicPartition("there-is-no-such-topic", 0)
    return {
        "partition counts": _result_of(
            lambda: admin.partition_counts([nowhere.topic], _TIMEOUT_MS)
        ),
        "end offsets": _result_of(lambda: consumer.end_offsets([nowhere], _TIMEOUT_MS)),
        "end offsets by the admin": _result_of(lambda: admin.end_offsets([nowhere], _TIMEOUT_MS)),
        "assign": _result_of(lambda: consumer.assign({nowhere: 0}, _TIMEOUT_MS)),
    }


def deleted_records(
    place: TopicPartition,
    admin: Admin,
    new_consumer: Callable[[], Consumer],
    producer: Producer,
) -> Answers:
    """The records of a partition after deletions, and reads beyond its ends.

    Each read uses a new consumer, since librdkafka caches the start of a partition for a while.
    """
    answers: Answers = {}
    consumer = new_consumer()
    _write(producer, place, [b"a", b"b", b"c", b"d", b"e"])
    answers["everything"] = _read(new_consumer(), place, 0)
    answers["delete 2"] = _wait(consumer, admin.delete_records({place: 2})[place])
    answers["beginning"] = str(consumer.beginning_offsets([place], _TIMEOUT_MS)[place])
    answers["end"] = str(consumer.end_offsets([place], _TIMEOUT_MS)[place])
    answers["from the beginning"] = _read(new_consumer(), place, OFFSET_BEGINNING)
    answers["from 0"] = _read(new_consumer(), place, 0)
    answers["from 2"] = _read(new_consumer(), place, 2)
    answers["from the end"] = _read(new_consumer(), place, 5)
    answers["from beyond the end"] = _read(new_consumer(), place, 6)
    answers["delete 1"] = _wait(consumer, admin.delete_records({place: 1})[place])
    answers["beginning after that"] = str(consumer.beginning_offsets([place], _TIMEOUT_MS)[place])
    answers["delete beyond the end"] = _wait(consumer, admin.delete_records({place: 9})[place])
    answers["delete everything"] = _wait(consumer, admin.delete_records({place: 5})[place])
    answers["after deleting everything"] = _read(new_consumer(), place, OFFSET_BEGINNING)
    _write(producer, place, [b"f"])
    answers["after the next write"] = _read(new_consumer(), place, OFFSET_BEGINNING)
    later = TopicPartition(place.topic, 0)
    answers["by time 1"] = str(consumer.offsets_for_times({later: 1}, _TIMEOUT_MS).get(later))
    answers["by time 2"] = str(consumer.offsets_for_times({later: 2}, _TIMEOUT_MS).get(later))
    return answers


def transactions(
    place: TopicPartition,
    admin: Admin,
    committed: Consumer,
    uncommitted: Consumer,
    transaction: Transaction,
) -> Answers:
    """Records and end offsets while a transaction is open, and after it."""
    answers: Answers = {}

    def observe(when: str) -> None:
        ends = (
            committed.end_offsets([place], _TIMEOUT_MS)[place],
            uncommitted.end_offsets([place], _TIMEOUT_MS)[place],
            admin.end_offsets([place], _TIMEOUT_MS)[place],
        )
        answers[f"{when}: ends for committed, for all, for the admin"] = str(ends)
        answers[f"{when}: committed"] = _read(committed, place, 0)
        answers[f"{when}: all"] = _read(uncommitted, place, 0)

    def end(*, commit: bool) -> None:
        transaction.end(commit=commit)
        # The marker is written after the answer.
        for _ in range(_POLLS):
            ends = [each.end_offsets([place], _TIMEOUT_MS)[place] for each in consumers]
            if len(set(ends)) == 1:
                break
            committed.poll_columns(1, _POLL_MS)

    consumers = (committed, uncommitted)
    transaction.write(place, [b"a", b"b"])
    observe("open")
    end(commit=True)
    observe("committed")
    transaction.write(place, [b"c"])
    observe("open again")
    end(commit=False)
    observe("aborted")
    transaction.write(place, [b"d"])
    end(commit=True)
    observe("committed at the end")
    return answers
