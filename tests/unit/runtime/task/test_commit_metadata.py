"""The metadata of committed offsets has the format of Kafka Streams."""

from __future__ import annotations

import logging

import pytest

from millstream.runtime.task.commit_metadata import CommitMetadata

#: Written by Kafka Streams 4.3.1: only a timestamp.
WRITTEN_BY_JAVA = "AgAAAaH/ux5T"


def test_timestamp_alone_is_encoded_like_in_java() -> None:
    """Nine bytes, read and written."""
    found = CommitMetadata.decode(WRITTEN_BY_JAVA)
    assert (found.partition_time, dict(found.processors)) == (1_795_291_815_507, {})
    assert found.encode() == WRITTEN_BY_JAVA


def test_metadata_of_processors_survives_a_round_trip() -> None:
    """Names of any length, values of any size."""
    metadata = CommitMetadata(5, {"store": 2**40, "größer": -1})
    assert CommitMetadata.decode(metadata.encode()) == metadata


def test_topic_ids_are_separate_from_the_metadata_of_processors() -> None:
    """Kafka Streams writes back the ids of all topics of a task."""
    ids = frozenset({"g95F/jqgRBOxcAD3YMoGqA", "fgO6CuZaQFmSsS6D0ava+w"})
    metadata = CommitMetadata(5, {"store": 7}, ids)
    assert CommitMetadata.decode(metadata.encode()) == metadata
    assert CommitMetadata.decode(CommitMetadata(5, {}, ids).encode()).processors == {}


@pytest.mark.parametrize("text", ["?", "AgAA", "AwAAAaH/ux5T", "AgAAAaH/ux5TAA=="])
def test_invalid_metadata_is_ignored_and_logged(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Not base64, truncated, of a later version, truncated after the timestamp."""
    with caplog.at_level(logging.WARNING):
        assert CommitMetadata.decode(text) == CommitMetadata()
    assert "invalid committed metadata" in caplog.text
    assert CommitMetadata.decode("") == CommitMetadata.decode(None) == CommitMetadata()
