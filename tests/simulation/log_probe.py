"""Questions about logs, asked of a real broker and of the simulated cluster alike, through the
protocols of the clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol

from millstream.errors import OffsetOutOfRangeError, StreamsError
from millstream.kafka.data.consumer import OFFSET_BEGINNING
from millstream.kafka.protocols import Admin, Consumer, Producer
from millstream.record import TopicPartition
from simulation.group_probe import Answers

_TIMEOUT_MS: Final = 20_000
_POLL_MS: Final = 1_000
_POLLS: Final = 10


class Transaction(Protocol):
    """A transactional producer, one transaction after the other."""

    def write(self, place: TopicPartition, values: Sequence[bytes]) -> None: ...
    def end(self, *, commit: bool) -> None: ...


def _told(call: Callable[[], object]) -> str:
    try:
        return str(call())
    except StreamsError as error:
        return type(error).__name__


def _read(consumer: Consumer, place: TopicPartition, start: int) -> str:
    """What is read from an offset on, up to the end that is seen then."""
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
    """How a deletion ends. Asking for something lets time pass, wherever it is asked."""
    for _ in range(_POLLS):
        if future.done():
            return "failed" if future.exception() is not None else "deleted"
        consumer.poll_columns(1, _POLL_MS)
    return "no answer"


def unknown_topics(admin: Admin, consumer: Consumer) -> Answers:
    """What is said of topics that do not exist."""
    nowhere = TopicPartition("there-is-no-such-topic", 0)
    return {
        "partition counts": _told(lambda: admin.partition_counts([nowhere.topic], _TIMEOUT_MS)),
        "end offsets": _told(lambda: consumer.end_offsets([nowhere], _TIMEOUT_MS)),
        "end offsets by the admin": _told(lambda: admin.end_offsets([nowhere], _TIMEOUT_MS)),
        "assign": _told(lambda: consumer.assign({nowhere: 0}, _TIMEOUT_MS)),
    }


def deleted_records(
    place: TopicPartition,
    admin: Admin,
    new_consumer: Callable[[], Consumer],
    producer: Producer,
) -> Answers:
    """What is left of a partition whose beginning is deleted, and beyond its ends.

    Each look is a new consumer's: librdkafka remembers for some moments where a partition began.
    """
    told: Answers = {}
    consumer = new_consumer()
    _write(producer, place, [b"a", b"b", b"c", b"d", b"e"])
    told["everything"] = _read(new_consumer(), place, 0)
    told["delete 2"] = _wait(consumer, admin.delete_records({place: 2})[place])
    told["beginning"] = str(consumer.beginning_offsets([place], _TIMEOUT_MS)[place])
    told["end"] = str(consumer.end_offsets([place], _TIMEOUT_MS)[place])
    told["from the beginning"] = _read(new_consumer(), place, OFFSET_BEGINNING)
    told["from 0"] = _read(new_consumer(), place, 0)
    told["from 2"] = _read(new_consumer(), place, 2)
    told["from the end"] = _read(new_consumer(), place, 5)
    told["from beyond the end"] = _read(new_consumer(), place, 6)
    told["delete 1"] = _wait(consumer, admin.delete_records({place: 1})[place])
    told["beginning then"] = str(consumer.beginning_offsets([place], _TIMEOUT_MS)[place])
    told["delete beyond the end"] = _wait(consumer, admin.delete_records({place: 9})[place])
    told["delete everything"] = _wait(consumer, admin.delete_records({place: 5})[place])
    told["nothing"] = _read(new_consumer(), place, OFFSET_BEGINNING)
    _write(producer, place, [b"f"])
    told["what comes then"] = _read(new_consumer(), place, OFFSET_BEGINNING)
    later = TopicPartition(place.topic, 0)
    told["by time 1"] = str(consumer.offsets_for_times({later: 1}, _TIMEOUT_MS).get(later))
    told["by time 2"] = str(consumer.offsets_for_times({later: 2}, _TIMEOUT_MS).get(later))
    return told


def transactions(
    place: TopicPartition,
    admin: Admin,
    committed: Consumer,
    uncommitted: Consumer,
    transaction: Transaction,
) -> Answers:
    """What is read, and where the partition ends, while a transaction is open, and after it."""
    told: Answers = {}

    def look(when: str) -> None:
        ends = (
            committed.end_offsets([place], _TIMEOUT_MS)[place],
            uncommitted.end_offsets([place], _TIMEOUT_MS)[place],
            admin.end_offsets([place], _TIMEOUT_MS)[place],
        )
        told[f"{when}: ends for committed, for all, for the admin"] = str(ends)
        told[f"{when}: committed"] = _read(committed, place, 0)
        told[f"{when}: all"] = _read(uncommitted, place, 0)

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
    look("open")
    end(commit=True)
    look("committed")
    transaction.write(place, [b"c"])
    look("open again")
    end(commit=False)
    look("aborted")
    transaction.write(place, [b"d"])
    end(commit=True)
    look("committed at last")
    return told
