"""Records written by a process after another one had taken over, according to the broker's files.

At-least-once does not prevent them: a process that was paused for longer than its session, or whose
bytes were delayed by the network, overwrites its successor's output.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from kafka.record.memory_records import MemoryRecords

from millstream.testing import EmbeddedKafka
from support.broker.topics import TopicRecord


def late_writes(
    kafka: EmbeddedKafka, topic: str, records: Iterable[tuple[int, TopicRecord]]
) -> list[bool]:
    """For each record, whether its writer had lost its task before.

    A run of consecutive records of one writer is late if the writer has written before others did,
    and the whole run comes from older input than theirs. A writer that gets a task back reads newer
    input.

    Args:
        records: all records of the topic with their offsets, partition by partition.
    """
    writers = _writers(kafka, topic)
    late: list[bool] = []
    seen: set[tuple[int, int]] = set()
    newest: dict[int, int] = {}

    def partition_and_writer(entry: tuple[int, TopicRecord]) -> tuple[int, int]:
        offset, record = entry
        return record.partition, _writer(writers[record.partition], offset)

    for place, row in groupby(records, partition_and_writer):
        times = [record.timestamp for _, record in row]
        newest_time = newest.get(place[0], -1)
        is_late = place in seen and max(times) < newest_time
        late += [is_late] * len(times)
        seen.add(place)
        newest[place[0]] = max(newest_time, *times)
    return late


def _writers(kafka: EmbeddedKafka, topic: str) -> Mapping[int, list[tuple[int, int]]]:
    """For each partition, the base offset and the producer id of each batch."""
    found: dict[int, list[tuple[int, int]]] = {}
    # Every broker has all replicas, and the one read here has caught up.
    for folder in (kafka.brokers[0].folder / "logs").glob(f"{topic}-*"):
        number = folder.name.removeprefix(f"{topic}-")
        if number.isdigit():
            batches: list[tuple[int, int]] = []
            for segment in sorted(folder.glob("*.log")):
                records = MemoryRecords(segment.read_bytes())
                while (batch := records.next_batch()) is not None:
                    batches.append((batch.base_offset, batch.producer_id))
            found[int(number)] = batches
    return found


def _writer(batches: Sequence[tuple[int, int]], offset: int) -> int:
    return batches[bisect_right(batches, offset, key=lambda batch: batch[0]) - 1][1]
