"""Records are never assigned to a wrong partition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import Message

from millstream.kafka.clients import record_consumer as module
from millstream.kafka.clients.record_consumer import RecordConsumer
from millstream.record import TopicPartition

KEPT, UNASSIGNED = TopicPartition("a", 0), TopicPartition("a", 1)


def test_records_of_a_recently_unassigned_partition_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka does not return such records; this simulated client does."""
    client = Mock()
    client.list_topics.return_value.topics = {"a": SimpleNamespace(error=None, partitions=[0, 1])}
    monkeypatch.setattr(module, "create_client", lambda kind, settings: client)
    consumer = RecordConsumer({}, speedups=False)
    consumer.assign({KEPT: 5, UNASSIGNED: 70})
    consumer.unassign([UNASSIGNED])

    def message(place: TopicPartition, offset: int) -> Any:
        where: Any = {"topic": place.topic, "partition": place.partition, "offset": offset}
        return Message(**where, value=b"%d" % offset, timestamp=(1, 1))

    late = [message(UNASSIGNED, 71), message(KEPT, 5), message(UNASSIGNED, 72), message(KEPT, 6)]
    client.consume.side_effect = [late[:1], late[1:]]
    (found,) = consumer.poll_columns(100, 0).items()
    place, columns = found
    assert (place, columns.offsets, columns.values) == (KEPT, range(5, 7), [b"5", b"6"])
    client.consume.side_effect = [late[:1], []]
    assert consumer.poll_columns(100, 0) == {}
