"""Goal: what stands beside a committed offset is what Kafka Streams writes and reads there."""

from __future__ import annotations

import logging

import pytest

from millstream.runtime.task.commit_metadata import CommitMetadata

#: Written by Kafka Streams 4.3.1: a time alone, which has nothing behind it.
OF_JAVA = "AgAAAaH/ux5T"


def test_a_time_alone_is_what_java_writes() -> None:
    """Nine bytes, read and written."""
    found = CommitMetadata.decode(OF_JAVA)
    assert (found.partition_time, dict(found.processors)) == (1_795_291_815_507, {})
    assert found.encode() == OF_JAVA


def test_what_processors_remember_comes_back() -> None:
    """Names of any length, values of any size."""
    metadata = CommitMetadata(5, {"store": 2**40, "größer": -1})
    assert CommitMetadata.decode(metadata.encode()) == metadata


def test_the_topic_is_told_from_what_processors_remember() -> None:
    """Kafka Streams writes back the ids of all topics of a task."""
    ids = frozenset({"g95F/jqgRBOxcAD3YMoGqA", "fgO6CuZaQFmSsS6D0ava+w"})
    metadata = CommitMetadata(5, {"store": 7}, ids)
    assert CommitMetadata.decode(metadata.encode()) == metadata
    assert CommitMetadata.decode(CommitMetadata(5, {}, ids).encode()).processors == {}


@pytest.mark.parametrize("text", ["?", "AgAA", "AwAAAaH/ux5T", "AgAAAaH/ux5TAA=="])
def test_what_cannot_be_read_is_unknown_and_said(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No base64, cut short, of a later version, cut short behind the time."""
    with caplog.at_level(logging.WARNING):
        assert CommitMetadata.decode(text) == CommitMetadata()
    assert "not readable" in caplog.text
    assert CommitMetadata.decode("") == CommitMetadata.decode(None) == CommitMetadata()
