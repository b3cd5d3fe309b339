"""Ready-made timestamp extractors: what a record's time is where Kafka's is of no use.

An extractor is a callable `(record, partition_time) -> int`. Semantics: the classes of the same
names in org.apache.kafka.streams.processor.
"""

from __future__ import annotations

import logging
from typing import Any

from millstream.clock import SystemClock
from millstream.errors import StreamsError
from millstream.record import Record

logger = logging.getLogger("millstream.processor")

#: Behind what is wrong with a record.
_PROBABLY = "its producer is probably older than Kafka 0.10"


class KeepValidTimestamp:
    """What extractors have in common that only look at records without a valid time.

    A time is valid if it is not negative. Derive from it and override `on_invalid_timestamp`.

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
        """The time of a record whose own is negative.

        Args:
            record: as it was read, with its negative time.
            partition_time: the highest time of the partition so far, in milliseconds since the
                epoch; -1 before the first.

        Returns:
            Milliseconds since the epoch; a negative number leaves the record out.

        Example:
            >>> class Never(KeepValidTimestamp):
            ...     def on_invalid_timestamp(self, record, partition_time):
            ...         return -1
            >>> Never().on_invalid_timestamp(Record("k", "v", 5), 7)
            -1
        """
        raise NotImplementedError


class FailOnInvalidTimestamp(KeepValidTimestamp):
    """Kafka's own time; a negative one stops the thread. The default.

    Example:
        >>> FailOnInvalidTimestamp()(Record("k", "v", 5), -1)
        5
    """

    def on_invalid_timestamp(self, record: Record[Any, Any], partition_time: int) -> int:
        """Never gives one.

        Raises:
            StreamsError: always.

        Example:
            >>> FailOnInvalidTimestamp().on_invalid_timestamp(Record("k", "v", 5), 7)
            Traceback (most recent call last):
            ...
            millstream.errors.StreamsError: A record has the timestamp 5, which is not a time; ...
        """
        raise StreamsError(
            f"A record has the timestamp {record.timestamp}, which is not a time; {_PROBABLY}. "
            "Give the source another timestamp_extractor."
        )


class LogAndSkipOnInvalidTimestamp(KeepValidTimestamp):
    """Kafka's own time; a record with a negative one is logged, counted as dropped, and left out.

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
        """The negative time, for which the record is left out.

        Example:
            >>> LogAndSkipOnInvalidTimestamp().on_invalid_timestamp(Record("k", "v", 5), 7)
            5
        """
        logger.warning(
            "a record has the timestamp %d, leaving it out; %s", record.timestamp, _PROBABLY
        )
        return record.timestamp


class UsePartitionTimeOnInvalidTimestamp(KeepValidTimestamp):
    """Kafka's own time; for a negative one the highest time of the partition so far.

    Example:
        >>> UsePartitionTimeOnInvalidTimestamp()(Record("k", "v", 5), 7)
        5
    """

    def on_invalid_timestamp(self, record: Record[Any, Any], partition_time: int) -> int:
        """The highest time of the partition so far.

        Raises:
            StreamsError: no record of the partition had a time so far.

        Example:
            >>> UsePartitionTimeOnInvalidTimestamp().on_invalid_timestamp(Record("k", "v", 5), 7)
            7
        """
        if partition_time < 0:
            raise StreamsError(
                f"A record has the timestamp {record.timestamp}, and no record of its partition "
                f"had a valid one so far that could be taken for it; {_PROBABLY}. Give the source "
                "another timestamp_extractor."
            )
        return partition_time


class WallclockTimestampExtractor:
    """The time at which a record is processed, whatever its own is: stream time follows the clock.

    Example:
        >>> WallclockTimestampExtractor()(Record("k", "v", 5), -1) > 1_700_000_000_000
        True
    """

    def __call__(self, record: Record[Any, Any], partition_time: int) -> int:
        return SystemClock().now_ms()
