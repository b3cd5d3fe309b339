"""Decaton's task metadata: source, creation time, retries and scheduled time.

The metadata is in the record's header `dt_meta`, or, for clients before Decaton 9, together with
the task in the record's value. Both are protobuf messages, defined by `decaton.proto` and
`decaton_internal.proto` of Decaton 9.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from millstream.errors import SerializationError
from millstream.record import Header
from millstream.serdes._serde import format_value
from millstream.subscriptions.tasks.decaton_protobuf import (
    WireFormatError,
    bytes_field,
    fields,
    message_field,
    read_int64,
    varint_field,
)

#: The record header that contains the metadata.
METADATA_HEADER: Final = "dt_meta"

_TIMESTAMP: Final = 1
#: The first byte that encoders write, since they write fields in the order of their numbers.
_TIMESTAMP_TAG: Final = b"\x08"
_APPLICATION: Final = 2
_INSTANCE: Final = 3
_RETRIES: Final = 4
_SCHEDULED: Final = 5
_REQUEST_METADATA: Final = 1
_REQUEST_TASK: Final = 2

#: The number of cached metadata suffixes. Each takes about 200 bytes.
_CACHE_SIZE: Final = 1_024


class DecatonMetadata(NamedTuple):
    """The metadata of a task, in the format of Decaton's `TaskMetadata`.

    Args:
        timestamp_ms: the creation time in milliseconds since the epoch; 0 if unknown.
        source_application_id: the application that created the task; empty if unknown.
        source_instance_id: the instance of that application; empty if unknown.
        retry_count: the number of previous attempts.
        scheduled_time_ms: the time before which the task is not processed, in milliseconds since
            the epoch; 0 for immediately.

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
        """Encode as a `TaskMetadataProto`, the value of the header `dt_meta`.

        Raises:
            SerializationError: a number exceeds 64 bits, or a string cannot be encoded as UTF-8.

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
                f"{self!r} cannot be encoded as Decaton's TaskMetadataProto: {error}. Times and "
                "retry_count must be 64-bit integers, and ids must be strings."
            ) from error

    @classmethod
    def from_bytes(cls, data: bytes) -> DecatonMetadata:
        """Decode a `TaskMetadataProto`. Unknown fields are ignored.

        Raises:
            SerializationError: the bytes are not a valid message.

        Example:
            >>> DecatonMetadata.from_bytes(bytes.fromhex("08 ac 02 20 01")).retry_count
            1
        """
        try:
            if data[:1] == _TIMESTAMP_TAG:
                timestamp_ms, at = read_int64(data, 1)
                rest = _decode_after_timestamp(data[at:])
                if rest is not None:
                    return cls(timestamp_ms, *rest[1:])
            return _decode_fields(data)[1]
        except (WireFormatError, UnicodeDecodeError) as error:
            raise SerializationError(
                f"{format_value(data)} cannot be decoded as Decaton's TaskMetadataProto: {error}. "
                f"Probably the header {METADATA_HEADER} was not written by a Decaton client."
            ) from error


@lru_cache(maxsize=_CACHE_SIZE)
def _decode_after_timestamp(data: bytes) -> DecatonMetadata | None:
    """Decode the fields after the timestamp; None if they contain another timestamp.

    In most tasks of one source, these fields have the same values, and a cache lookup takes a sixth
    of the time.
    """
    has_timestamp, metadata = _decode_fields(data)
    return None if has_timestamp else metadata


def _decode_fields(data: bytes) -> tuple[bool, DecatonMetadata]:
    """Decode all fields. The first item is whether they include a timestamp."""
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
            # Every occurrence of a repeated field must be valid UTF-8.
            texts[number] = value.decode()
    return has_timestamp, DecatonMetadata(
        numbers[_TIMESTAMP],
        texts[_APPLICATION],
        texts[_INSTANCE],
        numbers[_RETRIES],
        numbers[_SCHEDULED],
    )


def find_metadata(headers: Sequence[Header]) -> DecatonMetadata | None:
    """Return the metadata from a record's last metadata header; None without one.

    Raises:
        SerializationError: the metadata cannot be decoded.
    """
    for name, value in reversed(headers):
        if name == METADATA_HEADER:
            if value is None:
                raise SerializationError(
                    f"The header {METADATA_HEADER} has no value. Probably the record was not "
                    "written by a Decaton client."
                )
            return DecatonMetadata.from_bytes(value)
    return None


def with_metadata(headers: Sequence[Header], metadata: DecatonMetadata) -> list[Header]:
    """Return the headers with their metadata replaced.

    Raises:
        SerializationError: the metadata cannot be encoded.
    """
    return [*without_metadata(headers), (METADATA_HEADER, metadata.to_bytes())]


def without_metadata(headers: Sequence[Header]) -> list[Header]:
    """Return the headers without metadata."""
    return [header for header in headers if header[0] != METADATA_HEADER]


def request_bytes(metadata: DecatonMetadata, task: bytes) -> bytes:
    """Encode a task and its metadata as a `DecatonTaskRequest`.

    This is the format of record values before Decaton 9.

    Raises:
        SerializationError: the metadata cannot be encoded.
    """
    return message_field(_REQUEST_METADATA, metadata.to_bytes()) + bytes_field(_REQUEST_TASK, task)


def read_request(data: bytes) -> tuple[DecatonMetadata, bytes]:
    """Decode a `DecatonTaskRequest` into the metadata and the bytes of the task.

    As in Decaton, almost any short byte string is a valid request, possibly an empty one.

    Raises:
        SerializationError: the bytes are not a valid message.
    """
    metadata, task = b"", b""
    try:
        for number, value in fields(data):
            if isinstance(value, int):
                continue
            if number == _REQUEST_METADATA:
                # The fields of a repeated message are merged, which concatenation does.
                metadata += value
            elif number == _REQUEST_TASK:
                task = value
    except WireFormatError as error:
        raise SerializationError(
            f"{format_value(data)} cannot be decoded as a DecatonTaskRequest: {error}. Probably "
            "the record was not written by a Decaton client, or was written by Decaton 9 and lost "
            f"its header {METADATA_HEADER}."
        ) from error
    return DecatonMetadata.from_bytes(metadata), task
