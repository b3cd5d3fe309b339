"""Tasks out of consumed records: what is handed on, and which record is told to be none."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from millstream.errors import SerializationError
from millstream.kafka.data.record_columns import RecordColumns
from millstream.parallel import ConsumedRecord, DecatonMetadata, DecatonTask
from millstream.record import Header, TopicPartition
from millstream.serdes import INTEGER, JSON, STRING
from millstream.subscriptions.tasks.extraction import ExtractedTasks, TaskReader
from millstream.subscriptions.tasks.metadata import METADATA_HEADER, request_bytes

PLACE = TopicPartition("mails", 3)
METADATA = DecatonMetadata(17, "shop", "host", 2, 99)
WITH_METADATA: Sequence[Header] = (("trace", b"7"), (METADATA_HEADER, METADATA.to_bytes()))


def columns(
    values: list[bytes | None], headers: list[Sequence[Header]] | None = None
) -> RecordColumns:
    """Records at the offsets from 10 and the times from 100."""
    count = len(values)
    times = list(range(100, 100 + count))
    return RecordColumns([b"key"] * count, values, times, range(10, 10 + count), headers, None)


def values_of(found: ExtractedTasks) -> list[Any]:
    return [None if task is None else task.value for task in found.tasks]


def first_word(record: ConsumedRecord) -> DecatonTask[str]:
    """An extractor of a user's: the time stands before the task."""
    assert record.value is not None
    time, word = record.value.decode().split()
    return DecatonTask(DecatonMetadata(int(time)), word, record.value)


def test_records_of_anybody_are_tasks() -> None:
    """Without Decaton's header the record's own time is that of the task."""
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


def test_headers_count_record_by_record() -> None:
    """One of Decaton's client between two of others."""
    found = TaskReader(STRING).read(PLACE, columns([b"a", b"b", b"c"], [(), WITH_METADATA, ()]))
    assert [task and task.metadata for task in found.tasks] == [
        DecatonMetadata(100),
        METADATA,
        DecatonMetadata(102),
    ]


def test_what_is_none_is_told_by_itself() -> None:
    """Hunts a bad record that takes those around it along: payload, metadata, tombstone, None."""
    values = [b"1", b"{", None, b"null", b"5", b"6", b"7"]
    bad_header: Sequence[Header] = ((METADATA_HEADER, b"\x08"),)
    no_header: Sequence[Header] = ((METADATA_HEADER, None),)
    headers: list[Sequence[Header]] = [(), (), (), WITH_METADATA, bad_header, no_header, ()]
    found = TaskReader(JSON).read(PLACE, columns(values, headers))
    assert values_of(found) == [1, None, None, None, None, None, 7]
    told = {index: str(error) for index, error in found.failures.items()}
    assert sorted(told) == [1, 2, 3, 4, 5]
    for index, said in (
        (1, "JSON cannot deserialize"),
        (2, "has no value, so there is no task"),
        (3, "JSON makes None of"),
        (4, "TaskMetadataProto"),
        (5, "dt_meta has no value"),
    ):
        assert said in told[index]
        assert f"topic mails, partition 3, offset {10 + index}" in told[index]
    assert isinstance(found.failures[1].__cause__, Exception)


def test_all_may_be_none() -> None:
    """The last record failing must not be overlooked, nor none at all."""
    found = TaskReader(INTEGER).read(PLACE, columns([b"1", b"22", b"333"]))
    assert values_of(found) == [None] * 3
    assert sorted(found.failures) == [0, 1, 2]
    assert TaskReader(INTEGER).read(PLACE, columns([])) == ([], {})


def test_the_old_format_is_read_where_there_is_no_header() -> None:
    """With the fallback; the payload is what a retry sends, so it is the task alone."""
    request = request_bytes(METADATA, b"5")
    records = columns([request, b"6", b"7", None], [(), WITH_METADATA, (), ()])
    reader = TaskReader(JSON, legacy_parse_fallback=True)
    found = reader.read(PLACE, records)
    assert found.tasks[:2] == [DecatonTask(METADATA, 5, b"5"), DecatonTask(METADATA, 6, b"6")]
    assert "DecatonTaskRequest" in str(found.failures[2])
    assert "has no value" in str(found.failures[3])
    reader.legacy_parse_fallback = False
    assert sorted(reader.read(PLACE, records).failures) == [0, 3]
    # No record has any header.
    reader.legacy_parse_fallback = True
    assert values_of(reader.read(PLACE, columns([request]))) == [5]


def test_an_extractor_of_the_users_makes_the_tasks() -> None:
    """It sees all of the record, and whatever is wrong with it, it is that record's alone."""
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
    assert "extract cannot make a task of the record: ValueError" in str(found.failures[1])
    assert "offset 11" in str(found.failures[1])
    assert seen[2] == ConsumedRecord("mails", 3, 12, 102, WITH_METADATA, b"key", b"6 b")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "None in place of a DecatonTask"),
        ("task", "'task' in place"),
        (DecatonTask(METADATA, None, b""), "no part may be None"),
        (DecatonTask(METADATA, 1, None), "no part may be None"),  # type: ignore[arg-type]
    ],
)
def test_an_extractor_may_answer_nonsense(made: Any, said: str) -> None:
    found = TaskReader(extractor=lambda record: made).read(PLACE, columns([b"a"]))
    assert found.tasks == [None]
    assert said in str(found.failures[0])


def test_an_extractor_may_say_what_is_wrong() -> None:
    """Its words stay, with the place."""

    def extract(record: ConsumedRecord) -> DecatonTask[str]:
        raise SerializationError("Of no use.")

    found = TaskReader(extractor=extract).read(PLACE, columns([b"a"]))
    told = "Of no use. (topic mails, partition 3, offset 10)"
    assert str(found.failures[0]) == told


def test_retried_tasks_are_decatons() -> None:
    """The extractor gets the bytes of the first try, and the number of tries is the topic's."""
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
    # With a serde the retry topic is read as any other.
    [task] = TaskReader(STRING).read(PLACE, columns([b"a"], [WITH_METADATA]), retried=True).tasks
    assert task == DecatonTask(METADATA, "a", b"a")


def test_asynchronous_extractors_are_refused() -> None:
    """Nobody would await them."""

    async def extract(record: ConsumedRecord) -> DecatonTask[str]:
        return first_word(record)

    with pytest.raises(TypeError, match="needs a plain function as its extractor"):
        TaskReader(extractor=extract)  # type: ignore[arg-type]


def test_a_reader_is_shipped() -> None:
    """Spark's workers get it pickled, and tasks may be, too."""
    reader = pickle.loads(pickle.dumps(TaskReader(STRING, first_word)))
    [task] = reader.read(PLACE, columns([b"5 a"])).tasks
    assert pickle.loads(pickle.dumps(task)) == task
