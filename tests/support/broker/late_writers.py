"""Records that somebody wrote after somebody else had taken over, as the broker's files tell.

Under at-least-once nothing forbids it. A process that was paused for longer than its session, or
whose bytes a silent network has kept, writes over what its successor has written meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from kafka.record.memory_records import MemoryRecords

from millstream.testing import EmbeddedKafka
from support.broker.records import Found


def late_writes(
    kafka: EmbeddedKafka, topic: str, records: Iterable[tuple[int, Found]]
) -> list[bool]:
    """Of each record whether its writer had lost its task before.

    So it is for all that a writer writes in a row, if it had written before others did, and all of
    it comes from older input than what those have written. Who gets a task back comes to newer
    input.

    Args:
        kafka: the broker; its files are read.
        topic: what is asked about.
        records: all of it with their offsets, partition by partition.
    """
    writers = _writers(kafka, topic)
    late: list[bool] = []
    seen: set[tuple[int, int]] = set()
    newest: dict[int, int] = {}

    def who(entry: tuple[int, Found]) -> tuple[int, int]:
        offset, record = entry
        return record.partition, _writer(writers[record.partition], offset)

    for place, row in groupby(records, who):
        times = [record.timestamp for _, record in row]
        known = newest.get(place[0], -1)
        is_late = place in seen and max(times) < known
        late += [is_late] * len(times)
        seen.add(place)
        newest[place[0]] = max(known, *times)
    return late


def _writers(kafka: EmbeddedKafka, topic: str) -> Mapping[int, list[tuple[int, int]]]:
    """For each partition where batches begin, and the id that the broker gave their producer."""
    found: dict[int, list[tuple[int, int]]] = {}
    # Every broker has all replicas, and the one that is read has caught up.
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
