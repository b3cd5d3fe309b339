"""Writes one batch of a DataFrame function as Spark's workers do; can kill itself on the way.

python dataframe_batch.py <bootstrap> <topic> <batch> <query> [<method> <before|after> <time>]
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from millstream import StreamsConfig
from millstream.dataframes.kafka_writer import ExactlyOnceWriter, OutputTopic, QueryBatch
from millstream.dataframes.row_conversion import RowEncoder, StageSerdes
from millstream.kafka.clients.transactional_producer import TransactionalRecordProducer
from millstream.kafka.settings.librdkafka_settings import librdkafka_settings
from millstream.serdes import STRING

PARTITIONS = 3
ROWS = 60


def arm(method: str, when: str, times: int) -> None:
    """Kill this process before or after the nth call of a method of the producer."""
    original = getattr(TransactionalRecordProducer, method)
    left = times

    def wrapped(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **named)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    patch.object(TransactionalRecordProducer, method, wrapped).start()


def write(bootstrap: str, topic: str, number: int, query: str) -> int:
    """Write the batch and return the number of records that were not written before."""
    config = StreamsConfig(
        application_id=topic,
        bootstrap_servers=bootstrap,
        processing_guarantee="exactly_once_v2",
    )
    encode = RowEncoder(StageSerdes("stage", topic, STRING, STRING), PARTITIONS)
    rows = pa.RecordBatch.from_pydict(
        {
            "key": [f"key-{row}" for row in range(ROWS)],
            "value": [f"{number}-{row}" for row in range(ROWS)],
            "timestamp_ms": pa.array(range(1, ROWS + 1), pa.int64()),
            "headers": pa.nulls(ROWS),
        }
    )
    wire = pa.Table.from_batches(encode.run([rows])).sort_by("partition")
    target = OutputTopic(topic, librdkafka_settings(config, "producer", topic), 30_000)
    send = ExactlyOnceWriter(target, QueryBatch(number, query, f"{topic}-batches", topic))
    return sum(batch["records"][0].as_py() for batch in send.run(wire.to_batches()))


def main() -> None:
    bootstrap, topic, number, query, *failure = sys.argv[1:]
    if failure:
        arm(failure[0], failure[1], int(failure[2]))
    write(bootstrap, topic, int(number), query)


if __name__ == "__main__":
    main()
