"""The bytes of tasks are those of Decaton 9.5 and of protocol buffers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SerializationError
from millstream.parallel import DecatonMetadata
from millstream.subscriptions.tasks.decaton_metadata import (
    find_metadata,
    read_request,
    request_bytes,
    with_metadata,
    without_metadata,
)
from millstream.subscriptions.tasks.task_producer import TASK_KEY

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "decaton_9_5_0.json").read_text()
)["cases"]

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
METADATA = st.builds(DecatonMetadata, INT64, st.text(), st.text(), INT64, INT64)


def text(encoded: str) -> str:
    return bytes.fromhex(encoded).decode()


def metadata_of(encoded: list[str]) -> DecatonMetadata:
    time, application, instance, retries, scheduled = encoded[:5]
    return DecatonMetadata(
        int(time), text(application), text(instance), int(retries), int(scheduled)
    )


def put(application: str, instance: str, *rest: str) -> list[str]:
    """Return the output of the producer for a task, without Kafka."""
    time, scheduled, legacy, key, task = rest
    metadata = DecatonMetadata(
        int(time), text(application), text(instance), scheduled_time_ms=int(scheduled or 0)
    )
    written = TASK_KEY.serialize("tasks", None if key == "null" else text(key))
    key_hex = "null" if written is None else written.hex()
    payload = bytes.fromhex(task)
    if legacy == "true":
        return [key_hex, request_bytes(metadata, payload).hex(), "null"]
    [(name, value)] = with_metadata([], metadata)
    assert name == "dt_meta"
    assert value is not None
    return [key_hex, payload.hex(), value.hex()]


def encoded_fields(metadata: DecatonMetadata) -> list[str]:
    return [
        str(metadata.timestamp_ms),
        metadata.source_application_id.encode().hex(),
        metadata.source_instance_id.encode().hex(),
        str(metadata.retry_count),
        str(metadata.scheduled_time_ms),
    ]


def result_of(kind: str, *encoded: str) -> list[str]:
    if kind == "put":
        return put(*encoded)
    if kind == "write":
        return [metadata_of(list(encoded)).to_bytes().hex()]
    data = bytes.fromhex(encoded[0])
    try:
        if kind == "read":
            return encoded_fields(DecatonMetadata.from_bytes(data))
        metadata, task = read_request(data)
        return [*encoded_fields(metadata), task.hex()]
    except SerializationError:
        return ["refused"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_bytes_are_those_of_decaton(case: dict[str, Any]) -> None:
    """Decaton 9.5 writes, reads and rejects the same bytes."""
    assert result_of(*case["ask"]) == case["answer"]


def protobuf_message() -> Any:
    """Return the class that the protobuf library creates for Decaton's `TaskMetadataProto`."""
    file = descriptor_pb2.FileDescriptorProto(name="task.proto", syntax="proto3")
    message = file.message_type.add(name="TaskMetadataProto")
    fields = (
        "timestamp_millis",
        "source_application_id",
        "source_instance_id",
        "retry_count",
        "scheduled_time_millis",
    )
    for number, name in enumerate(fields, 1):
        kind = "TYPE_STRING" if name.endswith("_id") else "TYPE_INT64"
        message.field.add(name=name, number=number, type=kind, label="LABEL_OPTIONAL")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("TaskMetadataProto"))


MESSAGE = protobuf_message()


def as_message(metadata: DecatonMetadata) -> Any:
    return MESSAGE(
        timestamp_millis=metadata.timestamp_ms,
        source_application_id=metadata.source_application_id,
        source_instance_id=metadata.source_instance_id,
        retry_count=metadata.retry_count,
        scheduled_time_millis=metadata.scheduled_time_ms,
    )


@given(METADATA)
def test_bytes_are_those_of_the_protobuf_library(metadata: DecatonMetadata) -> None:
    """Written identically, and read back, for any values."""
    data = as_message(metadata).SerializeToString(deterministic=True)
    assert metadata.to_bytes() == data
    assert DecatonMetadata.from_bytes(data) == metadata


def varint(value: int) -> bytes:
    """Encode a 64-bit number like the protobuf library."""
    written: bytes = MESSAGE(retry_count=value).SerializeToString()
    return written[1:] or b"\0"


def field(number: int, kind: int, content: bytes) -> bytes:
    return varint(number << 3 | kind) + content


NUMBERS = st.integers(1, 7) | st.integers(1, (1 << 29) - 1)
BLOCKS = st.binary(max_size=6).map(lambda content: varint(len(content)) + content)
FIELDS = st.one_of(
    st.builds(field, NUMBERS, st.just(0), INT64.map(varint)),
    st.builds(field, NUMBERS, st.just(1), st.binary(min_size=8, max_size=8)),
    st.builds(field, NUMBERS, st.just(2), BLOCKS),
    st.builds(field, NUMBERS, st.just(5), st.binary(min_size=4, max_size=4)),
    st.builds(
        lambda number, inner: field(number, 3, inner) + field(number, 4, b""),
        NUMBERS,
        st.sampled_from([b"", b"\x08\x96\x01", b"\x12\x01a", b"\x0d1234", b"\x0912345678"]),
    ),
)


@given(st.lists(FIELDS, max_size=6).map(b"".join), st.sampled_from([0] * 6 + [1, 2, 5]))
def test_any_fields_are_read_like_in_the_protobuf_library(data: bytes, cut: int) -> None:
    """Detects a skipped field with a wrong length, which corrupts the rest."""
    data = data[: len(data) - cut]
    message = MESSAGE()
    try:
        message.ParseFromString(data)
    except DecodeError:
        with pytest.raises(SerializationError):
            DecatonMetadata.from_bytes(data)
    else:
        assert as_message(
            DecatonMetadata.from_bytes(data)
        ).SerializeToString() == _serialized_known_fields(message)


def _serialized_known_fields(message: Any) -> bytes:
    message.DiscardUnknownFields()
    serialized: bytes = message.SerializeToString()
    return serialized


@given(METADATA, st.binary())
def test_request_contains_metadata_and_task(metadata: DecatonMetadata, task: bytes) -> None:
    """The legacy format loses neither of them."""
    assert read_request(request_bytes(metadata, task)) == (metadata, task)


def test_last_header_is_used() -> None:
    """Like Decaton's `lastHeader`. Other headers stay, and rewriting leaves a single one."""
    first, last = DecatonMetadata(1), DecatonMetadata(2)
    headers = [("dt_meta", first.to_bytes()), ("trace", b"7"), ("dt_meta", last.to_bytes())]
    assert find_metadata(headers) == last
    assert find_metadata([("trace", b"7")]) is None
    retried = last._replace(retry_count=1)
    assert with_metadata(headers, retried) == [("trace", b"7"), ("dt_meta", retried.to_bytes())]
    assert without_metadata(headers) == [("trace", b"7")]


def test_errors_contain_the_bytes_and_the_reason() -> None:
    """Detects a bare "IndexError" about an invalid header."""
    with pytest.raises(SerializationError, match=r"1 bytes b'\\x08'.*end in the middle.*dt_meta"):
        DecatonMetadata.from_bytes(b"\x08")
    with pytest.raises(SerializationError, match="has no value"):
        find_metadata([("dt_meta", None)])
    with pytest.raises(SerializationError, match=r"DecatonTaskRequest.*wire type 6"):
        read_request(b"\x36")
    with pytest.raises(SerializationError, match="9223372036854775808 does not fit"):
        DecatonMetadata(1 << 63).to_bytes()
    with pytest.raises(SerializationError, match="64-bit integers"):
        DecatonMetadata(1.5).to_bytes()  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match="surrogates"):
        DecatonMetadata(1, "\ud800").to_bytes()


@pytest.mark.parametrize("key", ["a\tb", "é", "\x7f", 5])
def test_keys_that_decaton_rejects(key: Any) -> None:
    """Other characters, and other types; the error contains the remedy."""
    with pytest.raises(SerializationError, match="TaskProducer"):
        TASK_KEY.serialize("tasks", key)


def test_bytes_are_valid_keys() -> None:
    assert TASK_KEY.serialize("tasks", b"\x00\xff") == b"\x00\xff"
