"""An application whose batches take longer than a second each, to check whether its group
settles."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from millstream import KafkaStreams, StreamsBuilder, StreamsConfig
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka
from support.background import background
from support.broker.topics import fill, unique
from support.running.applications import processed
from support.waiting import stays, wait_for

#: The duration of a record, half of it with the interpreter lock held: more than a second, so that
#: no batch can be shorter.
_RECORD_S = 1.2
_SETTLING_S = 15.0


def work(key: Any, value: Any) -> None:
    """Take time, as user code does: computing, then waiting."""
    until = time.perf_counter() + _RECORD_S / 2
    while time.perf_counter() < until:
        pass
    time.sleep(_RECORD_S / 2)


def run_slow_batches(
    kafka: EmbeddedKafka, spark: Any, state_dir: Path, seconds: float
) -> tuple[list[str], int]:
    """Run two stream threads under load.

    Args:
        seconds: the observation time after the group has settled.

    Returns:
        The state changes and the number of processed records in that time.
    """
    topic = unique("slow-input")
    kafka.create_topic(topic, 4)
    builder = StreamsBuilder()
    builder.stream(topic, key=STRING, value=STRING).for_each(work)
    config = StreamsConfig(
        application_id=unique("slow-batches"),
        bootstrap_servers=kafka.bootstrap_servers,
        num_stream_threads=2,
        commit_interval_ms=1_000,
        state_dir=str(state_dir),
        consumer={
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 3_000,
        },
    )
    changes: list[str] = []
    streams = KafkaStreams(builder.build(), config, spark)
    streams.set_state_listener(lambda new, old: changes.append(f"{old.name} to {new.name}"))

    def feed() -> None:
        fill(kafka.bootstrap_servers, topic, ((b"%d" % n, b"x") for n in range(8)))

    with ExitStack() as closed, background(feed, 1.0):
        closed.callback(streams.close, timedelta(seconds=60))
        streams.start()
        streams.wait_for_state("RUNNING", timedelta(seconds=90))
        _wait_settled(streams, changes)
        seen, before = len(changes), processed(streams)
        stays(lambda: len(changes) == seen, seconds)
        return changes[seen:], processed(streams) - before


def _wait_settled(streams: KafkaStreams, changes: list[str]) -> None:
    """Wait until both threads have tasks, and nothing has changed for a while."""

    def both_have_tasks() -> bool:
        threads = streams.metadata_for_local_threads()
        return len(threads) == 2 and all(thread.active_tasks for thread in threads)

    def settled() -> bool:
        seen = len(changes)
        return stays(lambda: both_have_tasks() and len(changes) == seen, _SETTLING_S)

    wait_for(settled, 120, lambda: f"the group settles: {changes}")
