"""The bytes of tasks: those of Decaton 9.5, and of protocol buffers themselves."""

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
from millstream.subscriptions.tasks.keys import TASK_KEY
from millstream.subscriptions.tasks.metadata import (
    find_metadata,
    read_request,
    request_bytes,
    with_metadata,
    without_metadata,
)

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "decaton_9_5_0.json").read_text()
)["cases"]

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
METADATA = st.builds(DecatonMetadata, INT64, st.text(), st.text(), INT64, INT64)


def text(words: str) -> str:
    return bytes.fromhex(words).decode()


def metadata_of(words: list[str]) -> DecatonMetadata:
    time, application, instance, retries, scheduled = words[:5]
    return DecatonMetadata(
        int(time), text(application), text(instance), int(retries), int(scheduled)
    )


def put(application: str, instance: str, *rest: str) -> list[str]:
    """What the producer makes of a task, without Kafka."""
    time, scheduled, old, key, task = rest
    metadata = DecatonMetadata(
        int(time), text(application), text(instance), scheduled_time_ms=int(scheduled or 0)
    )
    written = TASK_KEY.serialize("tasks", None if key == "null" else text(key))
    key_told = "null" if written is None else written.hex()
    payload = bytes.fromhex(task)
    if old == "true":
        return [key_told, request_bytes(metadata, payload).hex(), "null"]
    [(name, value)] = with_metadata([], metadata)
    assert name == "dt_meta"
    assert value is not None
    return [key_told, payload.hex(), value.hex()]


def shown(metadata: DecatonMetadata) -> list[str]:
    return [
        str(metadata.timestamp_ms),
        metadata.source_application_id.encode().hex(),
        metadata.source_instance_id.encode().hex(),
        str(metadata.retry_count),
        str(metadata.scheduled_time_ms),
    ]


def answered(kind: str, *words: str) -> list[str]:
    if kind == "put":
        return put(*words)
    if kind == "write":
        return [metadata_of(list(words)).to_bytes().hex()]
    data = bytes.fromhex(words[0])
    try:
        if kind == "read":
            return shown(DecatonMetadata.from_bytes(data))
        metadata, task = read_request(data)
        return [*shown(metadata), task.hex()]
    except SerializationError:
        return ["refused"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_bytes_are_those_of_decaton(case: dict[str, Any]) -> None:
    """Whatever Decaton 9.5 writes, reads or refuses, so do we, to the byte."""
    assert answered(*case["ask"]) == case["answer"]


def protobuf_message() -> Any:
    """The class that the protobuf library makes of Decaton's `TaskMetadataProto`."""
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
    """Written alike, and read back, for any values."""
    data = as_message(metadata).SerializeToString(deterministic=True)
    assert metadata.to_bytes() == data
    assert DecatonMetadata.from_bytes(data) == metadata


def varint(value: int) -> bytes:
    """As the protobuf library writes a number of 64 bits."""
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
def test_any_fields_are_read_as_the_protobuf_library_reads_them(data: bytes, cut: int) -> None:
    """Hunts a field that is skipped by too much or too little, which makes nonsense of the rest."""
    data = data[: len(data) - cut]
    message = MESSAGE()
    try:
        message.ParseFromString(data)
    except DecodeError:
        with pytest.raises(SerializationError):
            DecatonMetadata.from_bytes(data)
    else:
        assert as_message(DecatonMetadata.from_bytes(data)).SerializeToString() == _known(message)


def _known(message: Any) -> bytes:
    message.DiscardUnknownFields()
    known: bytes = message.SerializeToString()
    return known


@given(METADATA, st.binary())
def test_a_request_holds_both(metadata: DecatonMetadata, task: bytes) -> None:
    """The old format loses neither the metadata nor the task."""
    assert read_request(request_bytes(metadata, task)) == (metadata, task)


def test_the_last_header_counts() -> None:
    """As Decaton's `lastHeader`; others of the record stay, and rewriting leaves a single one."""
    first, last = DecatonMetadata(1), DecatonMetadata(2)
    headers = [("dt_meta", first.to_bytes()), ("trace", b"7"), ("dt_meta", last.to_bytes())]
    assert find_metadata(headers) == last
    assert find_metadata([("trace", b"7")]) is None
    retried = last._replace(retry_count=1)
    assert with_metadata(headers, retried) == [("trace", b"7"), ("dt_meta", retried.to_bytes())]
    assert without_metadata(headers) == [("trace", b"7")]


def test_errors_say_what_and_why() -> None:
    """Hunts a bare "IndexError" about somebody's header."""
    with pytest.raises(SerializationError, match=r"1 bytes b'\\x08'.*end in the midst.*dt_meta"):
        DecatonMetadata.from_bytes(b"\x08")
    with pytest.raises(SerializationError, match="has no value"):
        find_metadata([("dt_meta", None)])
    with pytest.raises(SerializationError, match=r"DecatonTaskRequest.*kind 6"):
        read_request(b"\x36")
    with pytest.raises(SerializationError, match="9223372036854775808 does not fit"):
        DecatonMetadata(1 << 63).to_bytes()
    with pytest.raises(SerializationError, match="whole numbers"):
        DecatonMetadata(1.5).to_bytes()  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match="surrogates"):
        DecatonMetadata(1, "\ud800").to_bytes()


@pytest.mark.parametrize("key", ["a\tb", "é", "\x7f", 5])
def test_keys_that_decaton_refuses(key: Any) -> None:
    """Other characters, and other types; the error says what to do."""
    with pytest.raises(SerializationError, match="TaskProducer"):
        TASK_KEY.serialize("tasks", key)


def test_bytes_are_keys() -> None:
    assert TASK_KEY.serialize("tasks", b"\x00\xff") == b"\x00\xff"
