"""`map_batches` on a real broker, closed during its work and restarted."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.broker.topics import fill, read_all, unique
from support.running.thread_run import ThreadRun, thread_config
from support.waiting import wait_for

from millstream import StreamsBuilder, Topology
from millstream.serdes import LONG, STRING
from millstream.testing import EmbeddedKafka

COUNT = 4_000


def topology(source: str, target: str, slow_from: int, waiting: Path) -> Topology:
    async def doubled(batch: Any) -> Any:
        numbers = batch["value"].to_numpy()
        if numbers[-1] >= slow_from:
            with waiting.open("a") as lines:
                lines.write(f"{numbers[0]}\n")
            await asyncio.sleep(60)
        await asyncio.sleep(0.01)
        return numbers * 2

    builder = StreamsBuilder()
    numbers = builder.stream(source, key=STRING, value=LONG)
    doubles = numbers.map_batches(doubled, max_records=50, concurrency=3, schema=pa.int64())
    doubles.to(target, value=LONG)
    return builder.build()


@pytest.mark.parametrize(
    "guarantee", ["exactly_once_v2", pytest.param("at_least_once", marks=pytest.mark.extended)]
)
def test_nothing_is_lost_and_the_order_is_kept(
    kafka: EmbeddedKafka, tmp_path: Path, guarantee: str
) -> None:
    """Batches in flight at the close are completed, or repeated by the next thread: every number
    is output, in the order of the topic, and under exactly-once only once."""
    source, target, application = unique("numbers"), unique("doubles"), unique("doubling")
    for topic in (source, target):
        kafka.create_topic(topic, partitions=1)
    fill(
        kafka.bootstrap_servers,
        source,
        [(b"%d" % (number % 7), struct.pack(">q", number)) for number in range(COUNT)],
    )

    waiting = tmp_path / "waiting"

    def written() -> list[int]:
        records = read_all(kafka.bootstrap_servers, target)
        return [struct.unpack(">q", value or b"")[0] for _, value in records]

    def run(slow_from: int) -> ThreadRun:
        config = thread_config(
            kafka.bootstrap_servers, tmp_path, application, processing_guarantee=guarantee
        )
        return ThreadRun(topology(source, target, slow_from, waiting), config)

    with run(slow_from=COUNT // 2):
        wait_for(lambda: waiting.exists() and len(waiting.read_text().split()) == 3, 60)
    assert len(written()) < COUNT, "the thread was closed with three calls in flight"
    with run(slow_from=COUNT):
        wait_for(lambda: len(set(written())) == COUNT, 60)
    found = written()
    if guarantee == "at_least_once":
        found = list(dict.fromkeys(found))
    assert found == [2 * number for number in range(COUNT)]
