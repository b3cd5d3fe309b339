"""The cost of metrics: the same work with and without them, in turns.

The work needs no broker or Spark.

Metrics cost a few microseconds per batch. Without a broker, and with batches of 1,000 records,
other work is minimal, so the share of metrics is as large as possible. As in the loop, metrics of
each poll are recorded, and metrics are encoded for the driver twice per second.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from growth.tasks_alone import TOPIC, Poll, StandaloneTasks

from millstream import KStream, StreamsBuilder, TopicPartition, Topology
from millstream.kafka.clients.record_columns import RecordColumns
from millstream.serdes import BYTES, JSON, LONG, STRING

RECORDS = 1_000_000
ROUNDS = 7
SMOKE_RECORDS = 20_000

_BATCH = 1_000
_KEYS = 10_000
_PLACE = TopicPartition(TOPIC, 0)


def stateless(stream: KStream[str, Any]) -> None:
    """Read JSON, keep three in five events, add a field, and write JSON."""
    kept = stream.filter(lambda _, event: event["amount"] > 40)
    more = kept.map_values(lambda event: {**event, "cents": round(event["amount"] * 100)})
    more.to("out", key=STRING, value=JSON)


def count(stream: KStream[str, Any]) -> None:
    """Count by key in a cached store on disk, and write new counts to a topic."""
    counts = stream.group_by_key(key=STRING, value=BYTES).count(store="counts").to_stream()
    counts.to("out", key=STRING, value=LONG)


JOBS = {"stateless": stateless, "count": count}


def topology(job: str) -> Topology:
    """Return the topology of a job."""
    builder = StreamsBuilder()
    JOBS[job](builder.stream(TOPIC, key=STRING, value=JSON if job == "stateless" else BYTES))
    return builder.build()


def _batches(records: int) -> list[Poll]:
    made: list[Poll] = []
    now_ms = time.time_ns() // 1_000_000
    for first in range(0, records, _BATCH):
        numbers = range(first, min(records, first + _BATCH))
        users = [f"user-{(number * 7_919) % _KEYS}" for number in numbers]
        values: list[bytes | None] = [
            b'{"id":%d,"user":"%s","amount":%d.55,"kind":"add-to-cart"}'
            % (number, user.encode(), number % 100)
            for number, user in zip(numbers, users, strict=True)
        ]
        keys: list[bytes | None] = [user.encode() for user in users]
        times = [now_ms + number for number in numbers]
        made.append({_PLACE: RecordColumns(keys, values, times, numbers, None, None)})
    return made


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure all jobs with and without metrics in turns; return the results to save."""
    records: int = options.records or (SMOKE_RECORDS if options.smoke else RECORDS)
    batches = _batches(records)
    title = f"{records:,} records in batches of {_BATCH:,}, no broker"
    print(f"metrics: {title}; records per second of one processor\n")
    head = f"{'job':12} {'without':>10} {'INFO':>10} {'DEBUG':>10}   {'INFO costs':>10}"
    print(f"{head} {'µs/batch':>10}")
    measured: dict[str, Any] = {}
    for job in JOBS:
        seconds: dict[int | None, list[float]] = {None: [], 0: [], 1: []}
        for number in range(options.rounds or ROUNDS):
            levels = [None, 0, 1]
            # The order alternates between rounds.
            for level in levels if number % 2 else reversed(levels):
                work = StandaloneTasks(
                    topology(job), folder / f"{job}-{number}-{level}", level=level
                )
                seconds[level].append(work.run(batches))
                work.close()
        medians = {level: statistics.median(took) for level, took in seconds.items()}
        pairs = zip(seconds[None], seconds[0], strict=True)
        more = statistics.median(with_it - without for without, with_it in pairs)
        cost, each_us = more / medians[None], more / len(batches) * 1e6
        rates = {level: records / took for level, took in medians.items()}
        print(
            f"{job:12} {rates[None]:>10,.0f} {rates[0]:>10,.0f} {rates[1]:>10,.0f}   "
            f"{cost:>10.2%} {each_us:>10.1f}"
        )
        measured[job] = {
            "without": rates[None],
            "info": rates[0],
            "debug": rates[1],
            "cost": cost,
            "us_a_batch": each_us,
        }
    return measured


if __name__ == "__main__":
    import tempfile

    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--smoke", action="store_true")
    with tempfile.TemporaryDirectory() as place:
        run(parser.parse_args(), Path(place))
