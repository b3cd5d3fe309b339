"""Built-in timestamp extractors.

An extractor is a callable `(record, partition_time) -> int`. The semantics are those of the classes
of the same names in `org.apache.kafka.streams.processor`.
"""

from __future__ import annotations

import logging
from typing import Any

from millstream.clock import SystemClock
from millstream.errors import StreamsError
from millstream.record import Record

logger = logging.getLogger("millstream.processor")

#: The part of messages that explains invalid timestamps.
_PROBABLE_CAUSE = "its producer is probably older than Kafka 0.10"


class KeepValidTimestamp:
    """The base class of extractors that only replace invalid timestamps.

    A timestamp is valid if it is not negative. Subclasses override `on_invalid_timestamp`.

    Example:
        >>> class Yesterday(KeepValidTimestamp):
        ...     def on_invalid_timestamp(self, record, partition_time):
        ...         return 1_700_000_000_000
        >>> Yesterday()(Record("k", "v", 5), -1)
        5
    """

    def __call__(self, record: Record[Any, Any], partition_time: int) -> int:
        if record.timestamp >= 0:
            return record.timestamp
        return self.on_invalid_timestamp(record, partition_time)

    def on_invalid_timestamp(self, record: Record[Any, Any], partition_time: int) -> int:
        """Return the timestamp to use for a record with a negative timestamp.

        Args:
            record: the record, with its negative timestamp.
            partition_time: the highest timestamp of the partition so far, in milliseconds since the
                epoch; -1 before the first record.

        Returns:
            Milliseconds since the epoch; a negative number skips the record.

        Example:
            >>> class Never(KeepValidTimestamp):
            ...     def on_invalid_timestamp(self, record, partition_time):
            ...         return -1
            >>> Never().on_invalid_timestamp(Record("k", "v", 5), 7)
            -1
        """
        raise NotImplementedError


class FailOnInvalidTimestamp(KeepValidTimestamp):
    """The default extractor, which uses the record timestamp.

    A negative timestamp stops the thread.

    Example:
        >>> FailOnInvalidTimestamp()(Record("k", "v", 5), -1)
        5
    """

    def on_invalid_timestamp(self, record: Record[Any, Any], partition_time: int) -> int:
        """Raise an error.

        Raises:
            StreamsError: always.

        Example:
            >>> FailOnInvalidTimestamp().on_invalid_timestamp(Record("k", "v", 5), 7)
            Traceback (most recent call last):
            ...
            millstream.errors.StreamsError: A record has the invalid timestamp 5; ...
        """
        raise StreamsError(
            f"A record has the invalid timestamp {record.timestamp}; {_PROBABLE_CAUSE}. Give the "
            "source another timestamp_extractor."
        )


class LogAndSkipOnInvalidTimestamp(KeepValidTimestamp):
    """An extractor that logs and skips records with a negative timestamp.

    Skipped records count as dropped.

    Example:
        >>> builder = StreamsBuilder()
        >>> records = builder.stream(
        ...     "in",
        ...     key=STRING,
        ...     value=STRING,
        ...     timestamp_extractor=LogAndSkipOnInvalidTimestamp(),
        ... )
    """

    def on_invalid_timestamp(self, record: Record[Any, Any], partition_time: int) -> int:
        """Return the negative timestamp, which skips the record.

        Example:
            >>> LogAndSkipOnInvalidTimestamp().on_invalid_timestamp(Record("k", "v", 5), 7)
            5
        """
        logger.warning(
            "skipping a record with the invalid timestamp %d; %s", record.timestamp, _PROBABLE_CAUSE
        )
        return record.timestamp


class UsePartitionTimeOnInvalidTimestamp(KeepValidTimestamp):
    """An extractor that replaces negative timestamps with the partition time.

    The partition time is the highest timestamp of the partition so far.

    Example:
        >>> UsePartitionTimeOnInvalidTimestamp()(Record("k", "v", 5), 7)
        5
    """

    def on_invalid_timestamp(self, record: Record[Any, Any], partition_time: int) -> int:
        """Return the highest timestamp of the partition so far.

        Raises:
            StreamsError: no record of the partition has had a valid timestamp so far.

        Example:
            >>> UsePartitionTimeOnInvalidTimestamp().on_invalid_timestamp(Record("k", "v", 5), 7)
            7
        """
        if partition_time < 0:
            raise StreamsError(
                f"A record has the invalid timestamp {record.timestamp}, and no earlier record of "
                f"its partition had a valid one to use instead; {_PROBABLE_CAUSE}. Give the source "
                "another timestamp_extractor."
            )
        return partition_time


class WallclockTimestampExtractor:
    """An extractor that returns the wall-clock time.

    Stream time therefore follows the system clock.

    Example:
        >>> WallclockTimestampExtractor()(Record("k", "v", 5), -1) > 1_700_000_000_000
        True
    """

    def __call__(self, record: Record[Any, Any], partition_time: int) -> int:
        return SystemClock().now_ms()
