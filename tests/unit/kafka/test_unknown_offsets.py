"""librdkafka's -1001 means that an offset is unknown; it is neither a valid offset nor an end."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import OFFSET_END, OFFSET_INVALID, KafkaError, Message
from confluent_kafka import TopicPartition as ClientPartition

from millstream.clock import ManualClock
from millstream.errors import BrokerUnavailableError, OffsetOutOfRangeError
from millstream.kafka.clients import record_consumer as consumer_module
from millstream.kafka.clients.record_consumer import RecordConsumer
from millstream.kafka.cluster import admin as admin_module
from millstream.kafka.cluster.group_admin import GroupAdmin
from millstream.record import TopicPartition

FIRST, SECOND = TopicPartition("a", 0), TopicPartition("a", 1)


class TopicOffsets:
    """A cluster with one topic of two partitions, with offsets given by the test."""

    def __init__(self, *topic_offsets: dict[TopicPartition, int]) -> None:
        self._offsets = list(topic_offsets)
        self.requested: list[set[TopicPartition]] = []

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        return {"a": _done(SimpleNamespace(partitions=[0, 1]))}

    def list_offsets(
        self, requested: dict[ClientPartition, Any], **_: Any
    ) -> dict[Any, Future[Any]]:
        places = {TopicPartition(each.topic, each.partition): each for each in requested}
        self.requested.append(set(places))
        given_offsets = self._offsets.pop(0) if len(self._offsets) > 1 else self._offsets[0]
        return {
            each: _done(SimpleNamespace(offset=given_offsets[place]))
            for place, each in places.items()
        }


def _done(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def admin_of(topic_offsets: TopicOffsets, monkeypatch: pytest.MonkeyPatch) -> GroupAdmin:
    monkeypatch.setattr(admin_module, "create_client", lambda kind, settings: topic_offsets)
    return GroupAdmin({"bootstrap.servers": "nowhere:1"}, clock=ManualClock())


@pytest.mark.parametrize("read", ["end_offsets", "beginning_offsets"])
def test_an_unknown_offset_is_requested_again(monkeypatch: pytest.MonkeyPatch, read: str) -> None:
    """As the end of a changelog, it would make an intact store seem corrupted."""
    topic_offsets = TopicOffsets({FIRST: 7, SECOND: OFFSET_INVALID}, {SECOND: 5})
    admin = admin_of(topic_offsets, monkeypatch)
    assert getattr(admin, read)([FIRST, SECOND]) == {FIRST: 7, SECOND: 5}
    assert topic_offsets.requested == [{FIRST, SECOND}, {SECOND}]


@pytest.mark.parametrize("read", ["end_offsets", "beginning_offsets"])
@pytest.mark.parametrize("given_offsets", [OFFSET_INVALID, OFFSET_END])
def test_an_offset_that_stays_unknown_is_an_error(
    monkeypatch: pytest.MonkeyPatch, read: str, given_offsets: int
) -> None:
    """Callers try again later and keep their previous value."""
    admin = admin_of(TopicOffsets({FIRST: given_offsets}), monkeypatch)
    with pytest.raises(BrokerUnavailableError, match="a-0"):
        getattr(admin, read)([FIRST], 500)


def test_no_record_after_a_time_is_not_an_unknown_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers return -1 for it."""
    topic_offsets = TopicOffsets({FIRST: OFFSET_END, SECOND: OFFSET_INVALID}, {SECOND: 3})
    admin = admin_of(topic_offsets, monkeypatch)
    assert admin.offsets_at([FIRST, SECOND], 1) == {FIRST: None, SECOND: 3}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Mock:
    client = Mock()
    client.list_topics.return_value.topics = {"a": SimpleNamespace(error=None, partitions=[0, 1])}
    client.position.side_effect = lambda requested: [ClientPartition("a", 0, OFFSET_INVALID)]
    monkeypatch.setattr(consumer_module, "create_client", lambda kind, settings: client)
    return client


def set_offset(client: Mock, offset: int) -> None:
    client.offsets_for_times.return_value = [ClientPartition("a", 0, offset)]


def test_a_consumer_raises_for_unknown_offsets(client: Mock) -> None:
    """With an unknown offset for a time, reading would begin at the end and skip records."""
    consumer = RecordConsumer({}, speedups=False)
    set_offset(client, OFFSET_INVALID)
    with pytest.raises(BrokerUnavailableError, match="returned no offset"):
        consumer.end_offsets([FIRST])
    with pytest.raises(BrokerUnavailableError, match="returned no offset"):
        consumer.beginning_offsets([FIRST])
    with pytest.raises(BrokerUnavailableError, match="returned no offset"):
        consumer.offsets_for_times({FIRST: 5})
    set_offset(client, OFFSET_END)
    assert consumer.offsets_for_times({FIRST: 5}) == {}
    set_offset(client, 9)
    assert consumer.end_offsets([FIRST]) == consumer.offsets_for_times({FIRST: 5}) == {FIRST: 9}


def event(code: int, offset: int) -> Message:
    error: Any = KafkaError(code)
    return Message(topic="a", partition=0, offset=offset, error=error)


def test_an_unknown_end_is_not_an_end(client: Mock) -> None:
    """Otherwise a partition with records would seem to be read completely."""
    client.get_watermark_offsets.return_value = (0, OFFSET_INVALID)
    consumer = RecordConsumer({}, speedups=False)
    consumer.assign({FIRST: 5})
    client.consume.side_effect = [[event(KafkaError._PARTITION_EOF, OFFSET_INVALID)], []]
    consumer.poll_columns(10, 0)
    assert not consumer.at_end(FIRST)
    assert consumer.high_watermark(FIRST) is None


def test_an_unknown_offset_out_of_range_is_the_next_position(client: Mock) -> None:
    """With 0 instead, the group would seem to have continued without this member."""
    consumer = RecordConsumer({}, speedups=False)
    consumer.assign({FIRST: 5})
    client.consume.side_effect = [[event(KafkaError._AUTO_OFFSET_RESET, OFFSET_INVALID)], []]
    with pytest.raises(OffsetOutOfRangeError) as caught:
        consumer.poll_columns(10, 0)
    assert caught.value.offsets == {FIRST: 5}
