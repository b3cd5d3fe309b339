"""The checkpoint file has the bytes of Kafka Streams' file, is replaced atomically, and is
verified."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from millstream.errors import StreamsError
from millstream.record import TopicPartition
from millstream.state.directories.checkpoint import OFFSET_UNKNOWN, CheckpointFile

A, B = TopicPartition("a-changelog", 2), TopicPartition("b", 10)


@pytest.fixture
def file(tmp_path: Path) -> CheckpointFile:
    return CheckpointFile(tmp_path / ".checkpoint")


def test_the_format_is_that_of_kafka_streams(file: CheckpointFile) -> None:
    """Version, count, and a line per entry. No temporary file is left."""
    offsets = {B: 7, A: OFFSET_UNKNOWN}
    file.write(offsets)
    assert file.path.read_bytes() == b"0\n2\na-changelog 2 -4\nb 10 7\n"
    assert file.read() == offsets
    assert [path.name for path in file.path.parent.iterdir()] == [".checkpoint"]


def test_without_offsets_there_is_no_file(file: CheckpointFile) -> None:
    """Writing no offsets deletes the file, and a missing file reads as no offsets."""
    assert file.read() == {}
    file.write({A: 1})
    file.write({})
    assert not file.path.exists()
    file.delete()


def test_negative_offsets_are_rejected_when_written(file: CheckpointFile) -> None:
    """The previous file stays."""
    file.write({A: 1})
    with pytest.raises(ValueError, match="-1"):
        file.write({A: -1})
    assert file.read() == {A: 1}


def test_negative_offsets_are_skipped_when_read(
    file: CheckpointFile, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka Streams, with a warning."""
    file.path.write_text("0\n2\na 0 -1\nb 1 5\n")
    with caplog.at_level(logging.WARNING):
        assert file.read() == {TopicPartition("b", 1): 5}
    assert "a-0" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0\n",
        "1\n0\n",
        "0\nmany\n",
        "0\n2\na 0 1\n",
        "0\n1\na 0 1\nb 0 1\n",
        "0\n1\na 0\n",
        "0\n1\na zero 1\n",
        "0\n1\na 0 1 2\n",
    ],
)
def test_malformed_files_are_an_error(file: CheckpointFile, text: str) -> None:
    """Truncated files, unknown versions and wrong counts are not mistaken for empty files."""
    file.path.write_text(text)
    with pytest.raises(StreamsError, match="cannot be read"):
        file.read()


def test_whitespace_does_not_matter_when_read(file: CheckpointFile) -> None:
    """The reader splits on any whitespace, as Kafka Streams does."""
    file.path.write_text("0\n1\na\t0   1 \n\n")
    assert file.read() == {TopicPartition("a", 0): 1}
