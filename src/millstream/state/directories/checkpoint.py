"""The checkpoint file: the offsets of stores that do not store their own offsets.

The format is Kafka Streams' (`OffsetCheckpoint`, version 0):

    0
    <number of entries>
    <topic> <partition> <offset>
    ...
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from millstream.errors import StreamsError
from millstream.record import TopicPartition
from millstream.state.directories.disk import Disk

logger = logging.getLogger(__name__)

_VERSION: Final = "0"

#: The offset of a valid store whose changelog is still empty.
OFFSET_UNKNOWN: Final = -4


class CheckpointFile:
    """Offsets of changelog partitions in a file that is replaced atomically.

    Each offset is that of the last changelog record reflected in the store.
    """

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path = path
        self._disk = disk or Disk()

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file durably; delete it if there are no offsets.

        Raises:
            ValueError: an offset is negative and not `OFFSET_UNKNOWN`.
            OSError: the file could not be written. The previous file is unchanged.
        """
        for partition, offset in offsets.items():
            if offset < 0 and offset != OFFSET_UNKNOWN:
                raise ValueError(f"{offset} is not a valid offset of {partition}.")
        if not offsets:
            self.delete()
            return
        lines = [_VERSION, str(len(offsets))]
        lines += [f"{tp.topic} {tp.partition} {offsets[tp]}" for tp in sorted(offsets)]
        self._disk.replace_text(self.path, "\n".join(lines) + "\n", durable=True)

    def read(self) -> dict[TopicPartition, int]:
        """Return the offsets in the file; empty if there is no file.

        Entries with a negative offset are skipped with a warning, as in Kafka Streams.

        Raises:
            StreamsError: the file is malformed or cannot be read.
        """
        try:
            lines = self._disk.read_text(self.path).splitlines()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._malformed(f"{type(error).__name__}: {error}") from error
        if len(lines) < 2:
            raise self._malformed("it ends after fewer than two lines")
        if lines[0].strip() != _VERSION:
            raise self._malformed(f"its version is {lines[0]!r} instead of {_VERSION}")
        if not lines[1].strip().isdigit():
            raise self._malformed(f"the number of entries is {lines[1]!r}")
        expected = int(lines[1])
        entries = [line for line in lines[2:] if line.strip()]
        if len(entries) != expected:
            raise self._malformed(f"it has {len(entries)} entries instead of {expected}")
        return dict(filter(None, map(self._entry, entries)))

    def delete(self) -> None:
        self._disk.delete(self.path)

    def _entry(self, line: str) -> tuple[TopicPartition, int] | None:
        words = line.split()
        try:
            topic, partition, offset = words[0], int(words[1]), int(words[2])
        except (IndexError, ValueError):
            raise self._malformed(
                f"the line {line!r} is not a topic, partition and offset"
            ) from None
        if len(words) != 3:
            raise self._malformed(f"the line {line!r} has more than three words")
        if offset < 0 and offset != OFFSET_UNKNOWN:
            logger.warning("%s: skipping offset %d of %s-%d", self.path, offset, topic, partition)
            return None
        return TopicPartition(topic, partition), offset

    def _malformed(self, why: str) -> StreamsError:
        return StreamsError(
            f"The checkpoint file {self.path} cannot be read: {why}. "
            "Delete the file to rebuild the state from its changelogs."
        )
