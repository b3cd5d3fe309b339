"""Extraction of tasks from records, and errors for records without a task."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from millstream.errors import SerializationError
from millstream.kafka.clients.record_columns import RecordColumns
from millstream.parallel import ConsumedRecord, DecatonMetadata, DecatonTask
from millstream.record import Header, TopicPartition
from millstream.serdes import INTEGER, JSON, STRING
from millstream.subscriptions.tasks.decaton_metadata import METADATA_HEADER, request_bytes
from millstream.subscriptions.tasks.task_extraction import ExtractedTasks, TaskReader

PLACE = TopicPartition("mails", 3)
METADATA = DecatonMetadata(17, "shop", "host", 2, 99)
WITH_METADATA: Sequence[Header] = (("trace", b"7"), (METADATA_HEADER, METADATA.to_bytes()))


def columns(
    values: list[bytes | None], headers: list[Sequence[Header]] | None = None
) -> RecordColumns:
    """Return records with the offsets from 10 and the timestamps from 100."""
    count = len(values)
    times = list(range(100, 100 + count))
    return RecordColumns([b"key"] * count, values, times, range(10, 10 + count), headers, None)


def values_of(found: ExtractedTasks) -> list[Any]:
    return [None if task is None else task.value for task in found.tasks]


def first_word(record: ConsumedRecord) -> DecatonTask[str]:
    """A custom extractor: the timestamp is in front of the task."""
    assert record.value is not None
    time, word = record.value.decode().split()
    return DecatonTask(DecatonMetadata(int(time)), word, record.value)


def test_records_of_any_producer_are_tasks() -> None:
    """Without Decaton's header, the task has the timestamp of the record."""
    found = TaskReader(STRING).read(PLACE, columns([b"a", b"b"]))
    assert found.tasks == [
        DecatonTask(DecatonMetadata(100), "a", b"a"),
        DecatonTask(DecatonMetadata(101), "b", b"b"),
    ]
    assert found.failures == {}
    assert isinstance(found.tasks[0], DecatonTask)
    assert isinstance(found.tasks[0].metadata, DecatonMetadata)


def test_without_a_serde_a_task_is_its_bytes() -> None:
    assert values_of(TaskReader().read(PLACE, columns([b"a"]))) == [b"a"]


def test_headers_apply_to_single_records() -> None:
    """A record of Decaton's client between two others."""
    found = TaskReader(STRING).read(PLACE, columns([b"a", b"b", b"c"], [(), WITH_METADATA, ()]))
    assert [task and task.metadata for task in found.tasks] == [
        DecatonMetadata(100),
        METADATA,
        DecatonMetadata(102),
    ]


def test_record_without_a_task_only_fails_itself() -> None:
    """Detects a bad record that affects others: payload, metadata, tombstone, None."""
    values = [b"1", b"{", None, b"null", b"5", b"6", b"7"]
    bad_header: Sequence[Header] = ((METADATA_HEADER, b"\x08"),)
    no_header: Sequence[Header] = ((METADATA_HEADER, None),)
    headers: list[Sequence[Header]] = [(), (), (), WITH_METADATA, bad_header, no_header, ()]
    found = TaskReader(JSON).read(PLACE, columns(values, headers))
    assert values_of(found) == [1, None, None, None, None, None, 7]
    errors = {index: str(error) for index, error in found.failures.items()}
    assert sorted(errors) == [1, 2, 3, 4, 5]
    for index, message in (
        (1, "JSON cannot deserialize"),
        (2, "has no value, so it contains no task"),
        (3, "JSON deserialized the record's value to None"),
        (4, "TaskMetadataProto"),
        (5, "dt_meta has no value"),
    ):
        assert message in errors[index]
        assert f"topic mails, partition 3, offset {10 + index}" in errors[index]
    assert isinstance(found.failures[1].__cause__, Exception)


def test_all_records_can_fail() -> None:
    """A failure of the last record must not be overlooked; there may be no records at all."""
    found = TaskReader(INTEGER).read(PLACE, columns([b"1", b"22", b"333"]))
    assert values_of(found) == [None] * 3
    assert sorted(found.failures) == [0, 1, 2]
    assert TaskReader(INTEGER).read(PLACE, columns([])) == ([], {})


def test_legacy_format_is_read_without_a_header() -> None:
    """With the fallback. The payload is sent by retries, so it is only the task."""
    request = request_bytes(METADATA, b"5")
    records = columns([request, b"6", b"7", None], [(), WITH_METADATA, (), ()])
    reader = TaskReader(JSON, legacy_parse_fallback=True)
    found = reader.read(PLACE, records)
    assert found.tasks[:2] == [DecatonTask(METADATA, 5, b"5"), DecatonTask(METADATA, 6, b"6")]
    assert "DecatonTaskRequest" in str(found.failures[2])
    assert "has no value" in str(found.failures[3])
    reader.legacy_parse_fallback = False
    assert sorted(reader.read(PLACE, records).failures) == [0, 3]
    # No record has a header.
    reader.legacy_parse_fallback = True
    assert values_of(reader.read(PLACE, columns([request]))) == [5]


def test_custom_extractor_creates_the_tasks() -> None:
    """It receives the whole record, and its errors only affect that record."""
    seen = []

    def extract(record: ConsumedRecord) -> DecatonTask[str]:
        seen.append(record)
        return first_word(record)

    records = columns([b"5 a", b"a", b"6 b"], [(), (), WITH_METADATA])
    found = TaskReader(extractor=extract).read(PLACE, records)
    assert found.tasks == [
        DecatonTask(DecatonMetadata(5), "a", b"5 a"),
        None,
        DecatonTask(DecatonMetadata(6), "b", b"6 b"),
    ]
    assert "extract failed to extract a task from the record: ValueError" in str(found.failures[1])
    assert "offset 11" in str(found.failures[1])
    assert seen[2] == ConsumedRecord("mails", 3, 12, 102, WITH_METADATA, b"key", b"6 b")


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "None instead of a DecatonTask"),
        ("task", "'task' instead"),
        (DecatonTask(METADATA, None, b""), "no field may be None"),
        (DecatonTask(METADATA, 1, None), "no field may be None"),  # type: ignore[arg-type]
    ],
)
def test_invalid_result_of_an_extractor_is_an_error(result: Any, message: str) -> None:
    found = TaskReader(extractor=lambda record: result).read(PLACE, columns([b"a"]))
    assert found.tasks == [None]
    assert message in str(found.failures[0])


def test_extractor_can_raise_its_own_error() -> None:
    """The message is kept, with the location."""

    def extract(record: ConsumedRecord) -> DecatonTask[str]:
        raise SerializationError("Of no use.")

    found = TaskReader(extractor=extract).read(PLACE, columns([b"a"]))
    expected = "Of no use. (topic mails, partition 3, offset 10)"
    assert str(found.failures[0]) == expected


def test_retried_tasks_have_the_format_of_decaton() -> None:
    """The extractor receives the bytes of the first attempt; the number of attempts is that in the
    topic."""
    payload = b"5 a"
    seen = []

    def extract(record: ConsumedRecord) -> DecatonTask[str]:
        seen.append(record.value)
        return first_word(record)

    records = columns([payload, request_bytes(METADATA, payload), b"\x36"], [WITH_METADATA, (), ()])
    reader = TaskReader(extractor=extract, legacy_parse_fallback=True)
    found = reader.read(PLACE, records, retried=True)
    assert seen == [payload, payload]
    assert found.tasks == [
        DecatonTask(METADATA, "a", payload),
        DecatonTask(METADATA, "a", payload),
        None,
    ]
    assert "DecatonTaskRequest" in str(found.failures[2])
    # With a serde, the retry topic is read like any other.
    [task] = TaskReader(STRING).read(PLACE, columns([b"a"], [WITH_METADATA]), retried=True).tasks
    assert task == DecatonTask(METADATA, "a", b"a")


def test_asynchronous_extractors_are_rejected() -> None:
    """They would not be awaited."""

    async def extract(record: ConsumedRecord) -> DecatonTask[str]:
        return first_word(record)

    with pytest.raises(TypeError, match="needs a plain function as its extractor"):
        TaskReader(extractor=extract)  # type: ignore[arg-type]


def test_reader_can_be_pickled() -> None:
    """It is sent to Spark's workers. Tasks can be pickled as well."""
    reader = pickle.loads(pickle.dumps(TaskReader(STRING, first_word)))
    [task] = reader.read(PLACE, columns([b"5 a"])).tasks
    assert pickle.loads(pickle.dumps(task)) == task
