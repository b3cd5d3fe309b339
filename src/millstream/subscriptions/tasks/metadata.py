"""What Decaton writes beside a task: where it comes from, when, and when it is due.

It travels in the record's header `dt_meta`, or, as clients before Decaton 9 wrote it, with the task
in the record's value. Both are messages of protocol buffers; `decaton.proto` and
`decaton_internal.proto` of Decaton 9.5 define them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from millstream.errors import SerializationError
from millstream.record import Header
from millstream.serdes._serde import shown
from millstream.subscriptions.tasks.wire import (
    WireFormatError,
    bytes_field,
    fields,
    message_field,
    read_int64,
    varint_field,
)

#: The name of the header.
METADATA_HEADER: Final = "dt_meta"

_TIMESTAMP: Final = 1
#: With which encoders begin, since they write fields in the order of their numbers.
_TIMESTAMP_TAG: Final = b"\x08"
_APPLICATION: Final = 2
_INSTANCE: Final = 3
_RETRIES: Final = 4
_SCHEDULED: Final = 5
_REQUEST_METADATA: Final = 1
_REQUEST_TASK: Final = 2

#: Sources of tasks whose ids need not be read again; some 200 bytes each.
_REMEMBERED: Final = 1_024


class DecatonMetadata(NamedTuple):
    """Where a task comes from, when, and when it is due: Decaton's `TaskMetadata`.

    Args:
        timestamp_ms: when it was made, in milliseconds since the epoch; 0 if that is not known.
        source_application_id: the application that made it; empty if that is not known.
        source_instance_id: the instance of that application; empty if that is not known.
        retry_count: how often it was tried before.
        scheduled_time_ms: not to be processed before this time, in milliseconds since the epoch; 0
            for at once.

    Example:
        >>> metadata = DecatonMetadata(1_700_000_000_000, "shop", retry_count=1)
        >>> DecatonMetadata.from_bytes(metadata.to_bytes()) == metadata
        True
    """

    timestamp_ms: int = 0
    source_application_id: str = ""
    source_instance_id: str = ""
    retry_count: int = 0
    scheduled_time_ms: int = 0

    def to_bytes(self) -> bytes:
        """As a `TaskMetadataProto`, the value of the header `dt_meta`.

        Raises:
            SerializationError: a number has more than 64 bits, or a text cannot be written as
                UTF-8.

        Example:
            >>> DecatonMetadata(timestamp_ms=300, source_application_id="a").to_bytes().hex(" ")
            '08 ac 02 12 01 61'
        """
        try:
            return b"".join(
                (
                    varint_field(_TIMESTAMP, self.timestamp_ms),
                    bytes_field(_APPLICATION, self.source_application_id.encode()),
                    bytes_field(_INSTANCE, self.source_instance_id.encode()),
                    varint_field(_RETRIES, self.retry_count),
                    varint_field(_SCHEDULED, self.scheduled_time_ms),
                )
            )
        except (WireFormatError, UnicodeEncodeError, TypeError, AttributeError) as error:
            raise SerializationError(
                f"{self!r} cannot be written as Decaton's TaskMetadataProto: {error}. Its times "
                "and its count must be whole numbers of 64 bits, its ids texts."
            ) from error

    @classmethod
    def from_bytes(cls, data: bytes) -> DecatonMetadata:
        """Read a `TaskMetadataProto`; fields that are not known are left out.

        Raises:
            SerializationError: the bytes are none.

        Example:
            >>> DecatonMetadata.from_bytes(bytes.fromhex("08 ac 02 20 01")).retry_count
            1
        """
        try:
            if data[:1] == _TIMESTAMP_TAG:
                timestamp_ms, at = read_int64(data, 1)
                rest = _after_timestamp(data[at:])
                if rest is not None:
                    return cls(timestamp_ms, *rest)
            return cls(*_parsed(data)[1:])
        except (WireFormatError, UnicodeDecodeError) as error:
            raise SerializationError(
                f"{shown(data)} cannot be read as Decaton's TaskMetadataProto: {error}. Probably "
                f"the header {METADATA_HEADER} was not written by a Decaton client."
            ) from error


@lru_cache(maxsize=_REMEMBERED)
def _after_timestamp(data: bytes) -> tuple[str, str, int, int] | None:
    """What follows the time of a task; None if that is there again.

    Most tasks of one source say the same there, so that looking it up takes a sixth of the time.
    """
    has_timestamp, _, application, instance, retries, scheduled = _parsed(data)
    return None if has_timestamp else (application, instance, retries, scheduled)


def _parsed(data: bytes) -> tuple[bool, int, str, str, int, int]:
    """Whether there is a time of the task, and all fields in their order."""
    numbers = [0] * (_SCHEDULED + 1)
    texts = [""] * (_SCHEDULED + 1)
    has_timestamp = False
    for number, value in fields(data):
        if number > _SCHEDULED:
            continue
        if isinstance(value, int):
            numbers[number] = value
            has_timestamp = has_timestamp or number == _TIMESTAMP
        elif number in (_APPLICATION, _INSTANCE):
            # Also of one that comes twice each must be a text.
            texts[number] = value.decode()
    return (
        has_timestamp,
        numbers[_TIMESTAMP],
        texts[_APPLICATION],
        texts[_INSTANCE],
        numbers[_RETRIES],
        numbers[_SCHEDULED],
    )


def find_metadata(headers: Sequence[Header]) -> DecatonMetadata | None:
    """The metadata in a record's headers: the last counts. None if there are none.

    Raises:
        SerializationError: they cannot be read.
    """
    for name, value in reversed(headers):
        if name == METADATA_HEADER:
            if value is None:
                raise SerializationError(
                    f"The header {METADATA_HEADER} has no value. Probably it was not written by a "
                    "Decaton client."
                )
            return DecatonMetadata.from_bytes(value)
    return None


def with_metadata(headers: Sequence[Header], metadata: DecatonMetadata) -> list[Header]:
    """Headers of a record with metadata in place of those that it had.

    Raises:
        SerializationError: the metadata cannot be written.
    """
    return [*without_metadata(headers), (METADATA_HEADER, metadata.to_bytes())]


def without_metadata(headers: Sequence[Header]) -> list[Header]:
    """Headers of a record without metadata."""
    return [header for header in headers if header[0] != METADATA_HEADER]


def request_bytes(metadata: DecatonMetadata, task: bytes) -> bytes:
    """A task with its metadata as a `DecatonTaskRequest`: the value of records before Decaton 9.

    Raises:
        SerializationError: the metadata cannot be written.
    """
    return message_field(_REQUEST_METADATA, metadata.to_bytes()) + bytes_field(_REQUEST_TASK, task)


def read_request(data: bytes) -> tuple[DecatonMetadata, bytes]:
    """Read a `DecatonTaskRequest`: the metadata, and the bytes of the task.

    Follows Decaton in that almost any short bytes are one, perhaps with nothing in it.

    Raises:
        SerializationError: the bytes are none.
    """
    metadata, task = b"", b""
    try:
        for number, value in fields(data):
            if isinstance(value, int):
                continue
            if number == _REQUEST_METADATA:
                # Of a message that comes twice the fields are merged: the same as if all stood in
                # one.
                metadata += value
            elif number == _REQUEST_TASK:
                task = value
    except WireFormatError as error:
        raise SerializationError(
            f"{shown(data)} cannot be read as a DecatonTaskRequest: {error}. Probably it was "
            "written by a client that is no Decaton client, or is one of Decaton 9 that lost its "
            f"header {METADATA_HEADER}."
        ) from error
    return DecatonMetadata.from_bytes(metadata), task
