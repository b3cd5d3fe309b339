"""Group metadata for transactions, compared with the installed librdkafka."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from millstream.errors import ConfigError
from millstream.kafka.clients import group_metadata as module
from millstream.kafka.clients.group_metadata import GroupMetadata, verify_format


@pytest.mark.parametrize("instance_id", [None, "host-1"])
def test_the_format_equals_that_of_librdkafka(instance_id: str | None) -> None:
    """Byte for byte, including non-ASCII names."""
    settings = {"group.id": "größe"}
    if instance_id is not None:
        settings["group.instance.id"] = instance_id
    consumer = Consumer(settings)
    try:
        actual = consumer.consumer_group_metadata()
    finally:
        consumer.close()
    assert GroupMetadata(-1, "größe", "", instance_id).encoded() == actual


def test_generation_and_member() -> None:
    """The generation is an int32 in native byte order after the magic bytes."""
    written = GroupMetadata(258, "g", "m").encoded()
    assert written.startswith(b"CGMDv2:")
    assert int.from_bytes(written[7:11], __import__("sys").byteorder) == 258
    assert written[11:] == b"g\0m\0\1"
    assert GroupMetadata(1, "g", "m", "i").encoded().endswith(b"g\0m\0\0i\0")


def test_a_changed_format_is_detected_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise exactly-once would silently be at-least-once."""
    verify_format()
    monkeypatch.setattr(module, "_MAGIC", b"CGMDv1:")
    with pytest.raises(ConfigError, match="unknown format"):
        verify_format()
