"""librdkafka's -1001 says that an offset is not known: never a number, nor an end."""

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
from millstream.kafka.cluster import admin as admin_module
from millstream.kafka.cluster.group_admin import GroupAdmin
from millstream.kafka.data import consumer as consumer_module
from millstream.kafka.data.consumer import RecordConsumer
from millstream.record import TopicPartition

FIRST, SECOND = TopicPartition("a", 0), TopicPartition("a", 1)


class Answers:
    """A cluster with one topic of two partitions, of which the test gives the offsets."""

    def __init__(self, *answers: dict[TopicPartition, int]) -> None:
        self._answers = list(answers)
        self.asked: list[set[TopicPartition]] = []

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        return {"a": _done(SimpleNamespace(partitions=[0, 1]))}

    def list_offsets(self, asked: dict[ClientPartition, Any], **_: Any) -> dict[Any, Future[Any]]:
        places = {TopicPartition(each.topic, each.partition): each for each in asked}
        self.asked.append(set(places))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return {
            each: _done(SimpleNamespace(offset=answer[place])) for place, each in places.items()
        }


def _done(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def admin_of(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> GroupAdmin:
    monkeypatch.setattr(admin_module, "create_client", lambda kind, settings: answers)
    return GroupAdmin({"bootstrap.servers": "nowhere:1"}, clock=ManualClock())


@pytest.mark.parametrize("read", ["end_offsets", "beginning_offsets"])
def test_an_unknown_offset_is_asked_for_again(monkeypatch: pytest.MonkeyPatch, read: str) -> None:
    """Taken for the end of a changelog, it would make a sound store a corrupt one."""
    answers = Answers({FIRST: 7, SECOND: OFFSET_INVALID}, {SECOND: 5})
    admin = admin_of(answers, monkeypatch)
    assert getattr(admin, read)([FIRST, SECOND]) == {FIRST: 7, SECOND: 5}
    assert answers.asked == [{FIRST, SECOND}, {SECOND}]


@pytest.mark.parametrize("read", ["end_offsets", "beginning_offsets"])
@pytest.mark.parametrize("answer", [OFFSET_INVALID, OFFSET_END])
def test_an_offset_that_stays_unknown_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, read: str, answer: int
) -> None:
    """Callers ask again later, and keep what they have."""
    admin = admin_of(Answers({FIRST: answer}), monkeypatch)
    with pytest.raises(BrokerUnavailableError, match="a-0"):
        getattr(admin, read)([FIRST], 500)


def test_no_record_after_a_time_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers answer with -1 for it, which has to be told from what is not known."""
    answers = Answers({FIRST: OFFSET_END, SECOND: OFFSET_INVALID}, {SECOND: 3})
    admin = admin_of(answers, monkeypatch)
    assert admin.offsets_at([FIRST, SECOND], 1) == {FIRST: None, SECOND: 3}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Mock:
    client = Mock()
    client.list_topics.return_value.topics = {"a": SimpleNamespace(error=None, partitions=[0, 1])}
    client.position.side_effect = lambda asked: [ClientPartition("a", 0, OFFSET_INVALID)]
    monkeypatch.setattr(consumer_module, "create_client", lambda kind, settings: client)
    return client


def answered(client: Mock, offset: int) -> None:
    client.offsets_for_times.return_value = [ClientPartition("a", 0, offset)]


def test_a_consumer_has_no_answer_in_an_unknown_offset(client: Mock) -> None:
    """An unknown offset for a time would begin at the end and leave records out."""
    consumer = RecordConsumer({}, speedups=False)
    answered(client, OFFSET_INVALID)
    with pytest.raises(BrokerUnavailableError, match="not known"):
        consumer.end_offsets([FIRST])
    with pytest.raises(BrokerUnavailableError, match="not known"):
        consumer.beginning_offsets([FIRST])
    with pytest.raises(BrokerUnavailableError, match="not known"):
        consumer.offsets_for_times({FIRST: 5})
    answered(client, OFFSET_END)
    assert consumer.offsets_for_times({FIRST: 5}) == {}
    answered(client, 9)
    assert consumer.end_offsets([FIRST]) == consumer.offsets_for_times({FIRST: 5}) == {FIRST: 9}


def event(code: int, offset: int) -> Message:
    error: Any = KafkaError(code)
    return Message(topic="a", partition=0, offset=offset, error=error)


def test_an_unknown_end_is_no_end(client: Mock) -> None:
    """Else a partition that has records would seem to be read."""
    client.get_watermark_offsets.return_value = (0, OFFSET_INVALID)
    consumer = RecordConsumer({}, speedups=False)
    consumer.assign({FIRST: 5})
    client.consume.side_effect = [[event(KafkaError._PARTITION_EOF, OFFSET_INVALID)], []]
    consumer.poll_columns(10, 0)
    assert not consumer.at_end(FIRST)
    assert consumer.high_watermark(FIRST) is None


def test_an_unknown_offset_out_of_range_is_that_to_read_next(client: Mock) -> None:
    """With 0 in its place the group would seem to have gone on without this member."""
    consumer = RecordConsumer({}, speedups=False)
    consumer.assign({FIRST: 5})
    client.consume.side_effect = [[event(KafkaError._AUTO_OFFSET_RESET, OFFSET_INVALID)], []]
    with pytest.raises(OffsetOutOfRangeError) as caught:
        consumer.poll_columns(10, 0)
    assert caught.value.offsets == {FIRST: 5}
