"""An application whose every batch takes longer than a second, to see whether its group settles."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from millstream import KafkaStreams, StreamsBuilder, StreamsConfig
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka
from support.broker.topics import fill, unique
from support.waiting import stays, wait_for

#: How long a record takes, half of it holding the interpreter's lock: more than a second, so that
#: no batch can be shorter.
_RECORD_S = 1.2
_SETTLING_S = 15.0


def work(key: Any, value: Any) -> None:
    """Take time, as user code does: computing, then waiting."""
    until = time.perf_counter() + _RECORD_S / 2
    while time.perf_counter() < until:
        pass
    time.sleep(_RECORD_S / 2)


class Feeder(threading.Thread):
    """Keeps the input topic filled until told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self._topic = topic
        self._stop_asked = threading.Event()
        self.written = 0

    def run(self) -> None:
        while not self._stop_asked.is_set():
            records = ((str(n).encode(), b"x") for n in range(8))
            self.written += fill(self._servers, self._topic, records)
            self._stop_asked.wait(1.0)

    def stop(self) -> None:
        self._stop_asked.set()
        self.join(60)


def run_slow_batches(
    kafka: EmbeddedKafka, spark: Any, state_dir: Path, seconds: float
) -> tuple[list[str], int]:
    """Run two stream threads under load.

    Args:
        kafka: the broker.
        spark: the session.
        state_dir: for state.
        seconds: how long to watch once the group has settled.

    Returns:
        The changes of state while watching, and how many records were processed meanwhile.
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
    feeder = Feeder(kafka.bootstrap_servers, topic)
    feeder.start()
    streams.start()
    try:
        streams.wait_for_state("RUNNING", timedelta(seconds=90))
        _wait_settled(streams, changes)
        seen, processed = len(changes), _processed(streams)
        stays(lambda: len(changes) == seen, seconds)
        return changes[seen:], _processed(streams) - processed
    finally:
        feeder.stop()
        streams.close(timedelta(seconds=60))


def _wait_settled(streams: KafkaStreams, changes: list[str]) -> None:
    """Until both threads have tasks, and nothing has changed for a while."""

    def both_have_tasks() -> bool:
        threads = streams.metadata_for_local_threads()
        return len(threads) == 2 and all(thread.active_tasks for thread in threads)

    def settled() -> bool:
        seen = len(changes)
        return stays(lambda: both_have_tasks() and len(changes) == seen, _SETTLING_S)

    wait_for(settled, 120, lambda: f"the group settles: {changes}")


def _processed(streams: KafkaStreams) -> int:
    return int(streams.metrics().total("process-total", "stream-thread-metrics"))
