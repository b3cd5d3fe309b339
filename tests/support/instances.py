"""Instances of one application that count words, as processes that say what their tasks do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from millstream.testing import EmbeddedKafka
from support.scripts import Script
from support.topics import committed_lag
from support.word_count import WordCount

DRIVER = """
import json, sys, threading, time
from millstream import KafkaStreams, Materialized, StreamsBuilder, StreamsConfig
from millstream.serdes import LONG, STRING

BOOTSTRAP, NAME, STATE, SETTINGS = sys.argv[1:]


class Restored:
    def on_restore_start(self, place, store, start, end):
        print("restoring", json.dumps([place.partition, start, end]), flush=True)

    def on_batch_restored(self, place, store, end, count): ...

    def on_restore_end(self, place, store, total):
        print("restored", json.dumps([place.partition, total]), flush=True)


class Copied:
    def on_update_start(self, place, store, start): ...

    def on_batch_loaded(self, place, store, task_id, batch_end, count, end):
        print("copied", json.dumps([place.partition, batch_end, count]), flush=True)

    def on_update_suspended(self, place, store, offset, end, reason):
        print("suspended", json.dumps([place.partition, reason]), flush=True)


def tell(streams):
    last = None
    while True:
        threads = streams.metadata_for_local_threads()
        told = json.dumps({
            "state": streams.state.name,
            "active": sorted(task.task_id for each in threads for task in each.active_tasks),
            "standby": sorted(task.task_id for each in threads for task in each.standby_tasks),
        })
        if told != last:
            print("now", told, flush=True)
            last = told
        time.sleep(0.1)


def main():
    builder = StreamsBuilder()
    (
        builder.stream(f"{NAME}-lines", key=STRING, value=STRING)
        .flat_map_values(lambda line: line.split())
        .group_by(lambda _, word: word, key=STRING, value=STRING)
        .count(store=Materialized("counts", key=STRING, value=LONG, caching=False))
        .to_stream()
        .to(f"{NAME}-counts", key=STRING, value=LONG)
    )
    config = StreamsConfig(
        application_id=NAME,
        bootstrap_servers=BOOTSTRAP,
        state_dir=STATE,
        commit_interval_ms=200,
        consumer={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
        **json.loads(SETTINGS),
    )
    streams = KafkaStreams(builder.build(), config)
    streams.set_global_state_restore_listener(Restored())
    streams.set_standby_update_listener(Copied())
    threading.Thread(target=tell, args=(streams,), daemon=True).start()
    streams.run()


if __name__ == "__main__":
    main()
"""


class Instances:
    """One word count and the instances that run it.

    Args:
        kafka: the broker.
        folder: an empty one, for the state of each instance and what it writes to stderr.
        settings: further settings of the application.
    """

    def __init__(self, kafka: EmbeddedKafka, folder: Path, **settings: Any) -> None:
        self.application = WordCount(kafka, folder)
        self._folder = folder
        self._settings = json.dumps(settings)
        self._path = folder / "driver.py"
        self._path.write_text(DRIVER)

    @contextmanager
    def start(self, name: str) -> Iterator[Script]:
        application = self.application
        state = str(self._folder / name)
        arguments = (application.bootstrap, application.application_id, state, self._settings)
        with Script(self._path, *arguments, home=self._folder / f"run-{name}") as script:
            yield script

    @property
    def lag(self) -> int:
        """How many lines are not committed yet."""
        application = self.application
        return committed_lag(application.bootstrap, application.application_id, application.lines)


def now(script: Script) -> dict[str, Any]:
    """What an instance said last: its state, its active and its standby tasks."""
    assert script.is_running, script.errors
    told = [line for line in script.lines if line.startswith("now ")]
    return dict(json.loads(told[-1].removeprefix("now "))) if told else {}


def told(script: Script, what: str) -> list[list[Any]]:
    """Everything of that kind that an instance has said."""
    start = f"{what} "
    return [json.loads(line.removeprefix(start)) for line in script.lines if line.startswith(start)]


def last_copied(script: Script, number: int) -> int:
    """The last offset of a changelog partition that a standby has read."""
    return max((last for place, last, _ in told(script, "copied") if place == number), default=-1)


def end_of(application: WordCount, number: int) -> int:
    """Where a changelog partition ends."""
    reader = Consumer({"bootstrap.servers": application.bootstrap, "group.id": "ends"})
    try:
        place = TopicPartition(application.changelog_topic, number)
        return int(reader.get_watermark_offsets(place, timeout=30)[1])
    finally:
        reader.close()


#: The tasks that have state.
COUNTING = [f"1_{number}" for number in range(4)]


def counting(script: Script, role: str = "active") -> list[str]:
    """The tasks with state that an instance has in that role."""
    tasks: list[str] = now(script).get(role, [])
    return [task for task in tasks if task.startswith("1_")]


def is_running(script: Script) -> bool:
    """Whether an instance is RUNNING."""
    return bool(now(script).get("state") == "RUNNING")
