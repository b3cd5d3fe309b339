"""Reading records: fidelity, ends, pauses, missing offsets."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from support.broker.data_clients import (
    TIMEOUT_MS,
    Clients,
    numbered,
    place,
    poll,
    poll_until_error,
    poll_values,
    queued_so_far,
    until_end,
)
from support.broker.topics import fill, topic_names, unique
from support.waiting import NEVER_S, hang_guard

from millstream.errors import (
    IllegalStateError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from millstream.kafka.clients.record_columns import RecordColumns
from millstream.kafka.clients.record_consumer import OFFSET_BEGINNING, OFFSET_END
from millstream.kafka.partitioner import partition_for
from millstream.record import TopicPartition


def test_records_are_returned_unchanged(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Keys, values, timestamps and headers, including None and empty ones, in order."""
    topic = make_topic()
    keys = [b"k", None, b"", b"\x00\xff"]
    values = [None, b"v", b"", b"\xff" * 1_000]
    timestamps = [5, 1_700_000_000_000, 2**40, 7]
    headers = [(), [("a", b"1"), ("a", None), ("b", b"")], None, ()]
    producer = clients.producer()
    producer.send_many(topic, 0, keys, values, timestamps, headers)
    producer.send(topic, 0, b"one", b"more", 9, [("h", b"x")])
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    consumer.assign({place(topic): 0})
    columns: dict[TopicPartition, RecordColumns] = {}
    while not columns:
        columns = consumer.poll_columns(100, 1_000)
    found = columns[place(topic)]
    assert found.keys == [*keys, b"one"]
    assert found.values == [*values, b"more"]
    assert found.timestamps == [*timestamps, 9]
    assert list(found.offsets) == [0, 1, 2, 3, 4]
    assert found.headers == [(), tuple(headers[1] or ()), (), (), (("h", b"x"),)]
    assert found.leader_epoch is not None


def test_timestamp_zero_is_not_now(clients: Clients, make_topic: Callable[..., str]) -> None:
    """librdkafka takes timestamp 0 for "now", which would be wrong."""
    topic = make_topic()
    producer = clients.producer()
    producer.send_many(topic, 0, [None, None], [b"a", b"b"], [0, 3])
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    consumer.assign({place(topic): 0})
    times = [record.timestamp for record in until_end(consumer, place(topic))]
    assert times == [1, 3]


def test_partitions_are_chosen_as_in_java(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Without a partition the key decides as in Java; a list may mix both."""
    topic = make_topic(partitions=5)
    keys, values, timestamps = numbered(200)
    producer = clients.producer()
    producer.send_many(topic, None, keys, values, timestamps)
    producer.send_many(topic, [3, None, 4], keys[:3], [b"x", b"y", b"z"], timestamps[:3])
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    consumer.assign({place(topic, number): 0 for number in range(5)})
    found: dict[bytes | None, int] = {}
    while len(found) < 203:
        for record in poll(consumer, 100, 1_000):
            found[record.value] = record.partition
    for key, value in zip(keys, values, strict=True):
        assert found[value] == partition_for(key, 5)
    assert (found[b"x"], found[b"y"], found[b"z"]) == (3, partition_for(keys[1], 5), 4)


def test_a_single_record_is_returned_immediately(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
    """A poll waits only for the first record, regardless of its limit."""
    topic = make_topic()
    consumer, producer = clients.consumer(), clients.producer()
    consumer.assign({place(topic): 0})
    until_end(consumer, place(topic))
    producer.send(topic, 0, b"k", b"v", 1)
    with hang_guard("the poll"):
        assert len(poll(consumer, 10_000, int(NEVER_S * 1_000))) == 1


def test_poll_is_bounded(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Never more than requested, no duplicates, no gaps."""
    topic = make_topic()
    fill(clients.bootstrap, topic, [(b"k", b"%d" % number) for number in range(1_000)])
    consumer = clients.consumer()
    consumer.assign({place(topic): OFFSET_BEGINNING})
    sizes, values = list[int](), list[bytes | None]()
    while len(values) < 1_000:
        records = poll(consumer, 7, 1_000)
        sizes.append(len(records))
        values += [record.value for record in records]
    assert max(sizes) <= 7
    assert values == [b"%d" % number for number in range(1_000)]
    assert poll(consumer, 7, 0) == []


def test_end_and_watermark(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Known without a request to the broker, and invalid as soon as there are more records."""
    topic, other = make_topic(), place("other")
    consumer = clients.consumer()
    here = place(topic)
    assert consumer.position(other) is None
    assert (consumer.at_end(other), consumer.high_watermark(other)) == (False, None)
    consumer.assign({here: 0})
    assert (consumer.position(here), consumer.at_end(here)) == (0, False)
    assert until_end(consumer, here) == []
    assert (consumer.position(here), consumer.high_watermark(here)) == (0, 0)
    fill(clients.bootstrap, topic, [(b"k", b"v")] * 10)
    assert len(poll_values(consumer, 4, max_records=4)) == 4
    assert (consumer.position(here), consumer.at_end(here)) == (4, False)
    until_end(consumer, here)
    assert (consumer.position(here), consumer.high_watermark(here)) == (10, 10)
    assert consumer.end_offsets([here]) == {here: 10}
    assert consumer.beginning_offsets([here]) == {here: 0}
    assert consumer.end_offsets([]) == {}


def test_partitions_are_assigned_and_unassigned(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
    """Each is read from its own offset, and does not affect the others."""
    topic, second = make_topic(partitions=2), make_topic()
    fill(clients.bootstrap, second, [(b"k", b"s%d" % number) for number in range(3)])
    producer = clients.producer()
    for partition in (0, 1):
        producer.send_many(topic, partition, *numbered(50, start=100 * partition))
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    consumer.assign({place(topic, 0): 40})
    assert poll_values(consumer, 10) == [b"v%d" % number for number in range(40, 50)]
    consumer.assign({place(topic, 1): 45, place(second): OFFSET_BEGINNING})
    assert sorted(poll_values(consumer, 8)) == [  # type: ignore[type-var]
        *(b"s%d" % number for number in range(3)),
        *(b"v%d" % number for number in range(145, 150)),
    ]
    assert consumer.assigned == {place(topic, 0), place(topic, 1), place(second)}
    with pytest.raises(IllegalStateError, match="Already assigned"):
        consumer.assign({place(topic, 1): 0})
    consumer.unassign([place(topic, 1), place("never", 3)])
    producer.send(topic, 1, b"k", b"not read", 1)
    producer.send(topic, 0, b"k", b"read", 1)
    producer.flush(TIMEOUT_MS)
    assert poll_values(consumer, 1) == [b"read"]
    consumer.assign({place(topic, 1): 50})
    assert poll_values(consumer, 1) == [b"not read"]
    consumer.unassign([place(topic, 1)])
    consumer.assign({place(topic, 1): OFFSET_END})
    until_end(consumer, place(topic, 1))
    assert consumer.position(place(topic, 1)) == 51


def test_records_fetched_before_an_unassignment_are_dropped(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
    """Method: unassign partitions and assign them at other offsets, at random moments of fetching.

    Records come only from assigned partitions, consecutively from the assigned offset.
    """
    count, rounds, chance = 20_000, 300, random.Random(1)
    topic, other = make_topic(partitions=2), make_topic()
    places = [place(topic, 0), place(topic, 1), place(other)]
    producer = clients.producer()
    for each in places:
        producer.send_many(each.topic, each.partition, *numbered(count))
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    position: dict[TopicPartition, int] = {}
    taken = 0
    for _ in range(rounds):
        for each in places:
            if each in position and chance.random() < 0.5:
                consumer.unassign([each])
                del position[each]
            if each not in position and chance.random() < 0.5:
                position[each] = chance.randrange(count // 2)
                consumer.assign({each: position[each]})
        for _ in range(chance.randrange(3)):
            most, wait_ms = chance.choice((10, 500)), chance.choice((0, 5, 20))
            for each, columns in consumer.poll_columns(most, wait_ms).items():
                first, last = columns.offsets[0], columns.offsets[-1]
                assert first == position[each]
                assert columns.values == numbered(last + 1 - first, start=first)[1]
                position[each] = last + 1
                taken += len(columns.offsets)
    assert taken > rounds


def test_pause_and_resume(clients: Clients, make_topic: Callable[..., str]) -> None:
    """A paused partition returns nothing while others continue; then it continues where it
    stopped."""
    topic = make_topic(partitions=2)
    producer = clients.producer()
    for partition in (0, 1):
        producer.send_many(topic, partition, *numbered(10, start=100 * partition))
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    stopped, other = place(topic, 0), place(topic, 1)
    consumer.assign({stopped: 5})
    assert poll_values(consumer, 3, max_records=3) == [b"v5", b"v6", b"v7"]
    consumer.pause([stopped])
    consumer.assign({other: 0})
    assert poll_values(consumer, 10) == [b"v%d" % number for number in range(100, 110)]
    assert poll(consumer, 10, 300) == []
    consumer.resume([stopped, other])
    assert poll_values(consumer, 2) == [b"v8", b"v9"]
    consumer.pause([stopped])
    consumer.unassign([stopped])
    consumer.assign({stopped: 9})
    assert poll_values(consumer, 1) == [b"v9"]
    assert until_end(consumer, stopped) == []
    consumer.pause([stopped])
    consumer.resume([stopped])
    assert not consumer.at_end(stopped), "more may have come"
    assert until_end(consumer, stopped) == []
    assert consumer.at_end(stopped)


def test_offsets_for_times(clients: Clients, make_topic: Callable[..., str]) -> None:
    """The first record at or after a timestamp; a partition without one is left out."""
    topic = make_topic(partitions=2)
    producer = clients.producer()
    producer.send_many(topic, 0, [None] * 3, [b"a", b"b", b"c"], [100, 200, 300])
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    first, second = place(topic, 0), place(topic, 1)
    assert consumer.offsets_for_times({first: 150, second: 150}) == {first: 1}
    assert consumer.offsets_for_times({first: 301}) == {}


def test_a_missing_offset(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Raised with its partition after the records of other partitions; then reading continues."""
    topic = make_topic(partitions=2)
    producer = clients.producer()
    producer.send_many(topic, 0, *numbered(3))
    producer.send_many(topic, 1, *numbered(3))
    producer.flush(TIMEOUT_MS)
    for future in clients.admin().delete_records({place(topic, 1): 2}).values():
        future.result(20)
    for offset in (1, 99):
        consumer = clients.consumer()
        consumer.assign({place(topic, 0): 0, place(topic, 1): offset})
        values: list[bytes | None] = []
        with pytest.raises(OffsetOutOfRangeError) as raised:
            poll_until_error(consumer, values)
        assert (raised.value.topic, raised.value.partition) == (topic, 1)
        assert raised.value.offset == offset
        assert raised.value.offsets == {place(topic, 1): offset}
        consumer.unassign([place(topic, 1)])
        consumer.assign({place(topic, 1): OFFSET_BEGINNING})
        values += poll_values(consumer, 4 - len(values))
        assert sorted(values) == [b"v0", b"v1", b"v2", b"v2"]  # type: ignore[type-var]


def test_all_missing_offsets_are_reported(clients: Clients, make_topic: Callable[..., str]) -> None:
    """librdkafka reports each once and then stops reading the partition, so none may be lost."""
    topic = make_topic(partitions=4)
    producer = clients.producer()
    for partition in range(4):
        producer.send(topic, partition, None, b"%d" % partition, 1)
    producer.flush(TIMEOUT_MS)
    wrong = {place(topic, 0): 50, place(topic, 1): 51, place(topic, 3): 53}
    consumer = clients.consumer()
    consumer.assign(wrong)
    queued_so_far(consumer, place(topic, 2))
    reported: dict[TopicPartition, int] = {}
    values: list[bytes | None] = []
    while reported.keys() != wrong.keys():
        with pytest.raises(OffsetOutOfRangeError) as raised:
            poll_until_error(consumer, values)
        error = raised.value
        assert not reported.keys() & error.offsets.keys()
        reported.update(error.offsets)
        consumer.unassign(error.offsets)
        consumer.assign(dict.fromkeys(error.offsets, OFFSET_BEGINNING))
    assert reported == wrong
    values += poll_values(consumer, 4 - len(values))
    assert sorted(values) == [b"0", b"1", b"2", b"3"]  # type: ignore[type-var]


def test_a_failure_is_dropped_with_its_partition(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
    """If the poll has records of another partition, the error waits for the next poll.

    It is dropped if the partition is unassigned, even if it is assigned again.
    """
    topic = make_topic(partitions=3)
    producer = clients.producer()
    for partition in range(3):
        producer.send_many(topic, partition, *numbered(1))
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    gone = place(topic, 1)
    consumer.assign({gone: 99})
    queued_so_far(consumer, place(topic, 0))
    queued_so_far(consumer, place(topic, 2))
    assert poll(consumer, 100, 5_000)
    consumer.unassign([gone])
    assert poll(consumer, 100, 300) == []
    consumer.assign({gone: 0})
    assert poll_values(consumer, 1) == [b"v0"]


def test_missing_topics_and_partitions(clients: Clients, make_topic: Callable[..., str]) -> None:
    """An immediate error that names it; nothing is created, nothing is partially assigned."""
    topic = make_topic()
    consumer = clients.consumer()
    absent = unique("missing")
    for missing in (place(absent), place(topic, 1)):
        with pytest.raises(UnknownTopicError) as raised:
            consumer.assign({place(topic): 0, missing: 0})
        assert raised.value.topic == missing.topic
        with pytest.raises(UnknownTopicError):
            consumer.end_offsets([missing])
        with pytest.raises(UnknownTopicError):
            clients.admin().end_offsets([missing])
    assert consumer.assigned == frozenset()
    assert absent not in topic_names(clients.bootstrap)


def test_a_truncated_log_is_detected_by_its_leader_epoch(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
    """Goal: an offset that exists again, after other records than before, is out of range as
    well."""
    topic = make_topic()
    producer = clients.producer()
    producer.send_many(topic, 0, *numbered(10))
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    consumer.assign({place(topic): 4}, leader_epochs={place(topic): 0})
    assert len(poll_values(consumer, 6)) == 6
    # From an epoch in which this log was never written.
    consumer = clients.consumer()
    consumer.assign({place(topic): 4}, leader_epochs={place(topic): 7})
    with pytest.raises(OffsetOutOfRangeError) as raised:
        poll_values(consumer, 1)
    assert set(raised.value.offsets) == {place(topic)}
