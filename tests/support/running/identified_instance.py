"""An instance of an application with ids (`support.running.topologies.identified`), as a script
that reports its tasks.

    python identified_instance.py BOOTSTRAP NAME STATE SETTINGS

SETTINGS is JSON: settings of the application, and `master` (of Spark), `takes_ms` (the duration of
each id in the first sub-topology), and `log_level`. Failed threads are replaced. The lines `add`
and `remove` on stdin change the number of threads.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millstream import (
    DeadLetter,
    ErrorContext,
    HandlerResponse,
    KafkaStreams,
    StreamsConfig,
)
from millstream.processor.handlers import HandlerResult
from millstream.spark.sessions.free_slots import free_slots
from support.running.instance_script import (
    SHORT_SESSIONS,
    emit,
    follow_commands,
    report_changes,
    run_instance,
)
from support.running.topologies.identified import POISON, identified_topology
from support.waiting import wait_for


class PrintingListener:
    """A listener for restorations and standbys that prints events."""

    def on_restore_start(self, place: Any, store: str, start: int, end: int) -> None:
        emit("restoring", [place.partition, start, end])

    def on_batch_restored(self, place: Any, store: str, end: int, count: int) -> None: ...

    def on_restore_end(self, place: Any, store: str, total: int) -> None:
        emit("restored", [place.partition, total])

    def on_update_start(self, place: Any, store: str, start: int) -> None:
        emit("copying", [place.partition, start])

    def on_batch_loaded(
        self, place: Any, store: str, task_id: Any, batch_end: int, count: int, end: int
    ) -> None:
        emit("copied", [place.partition, batch_end, count])

    def on_update_suspended(
        self, place: Any, store: str, offset: int, end: int, reason: Any
    ) -> None:
        emit("suspended", [place.partition, reason])


class FaultyMapper:
    """A user function that fails once, or blocks once, each time that it finds (and removes) a
    file.

    Args:
        state: the prefix of the files' names.
        takes_ms: the duration of each call.
    """

    def __init__(self, state: str, takes_ms: int = 0) -> None:
        self._takes_s = takes_ms / 1_000
        self._fails = Path(f"{state}-fails")
        self._slow = Path(f"{state}-slow")

    def __call__(self, value: str) -> str:
        if self._fails.exists():
            self._fails.unlink(missing_ok=True)
            raise ValueError("fails once")
        if self._slow.exists():
            seconds = float(self._slow.read_text() or 0)
            self._slow.unlink(missing_ok=True)
            time.sleep(seconds)
        if self._takes_s:
            time.sleep(self._takes_s)
        return value


class PoisonHandler:
    """A handler that sends poison records to the dead-letter queue; other errors end the thread."""

    def __init__(self, queue: str) -> None:
        self._queue = queue

    def __call__(self, context: ErrorContext, record: Any, error: Exception) -> HandlerResult:
        if context.source_value != POISON:
            return HandlerResponse.FAIL
        letter = DeadLetter.of(context, error, self._queue)
        return HandlerResponse.CONTINUE.with_dead_letters(letter)


def session(master: str) -> SparkSession:
    """A session of a cluster whose executors have two slots each."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    for name in ("host", "bindAddress"):
        builder = builder.config(f"spark.driver.{name}", "127.0.0.1")
    for name, value in (("executor.cores", "2"), ("cores.max", "2"), ("executor.memory", "512m")):
        builder = builder.config(f"spark.{name}", value)
    created = builder.getOrCreate()
    wait_for(lambda: free_slots(created).free >= 2, 90, "an executor is registered")
    return created


def main() -> None:
    bootstrap, name, state, given = sys.argv[1:]
    settings = json.loads(given)
    caching, master = settings.pop("caching", True), settings.pop("master", None)
    logging.getLogger("millstream").setLevel(settings.pop("log_level", logging.NOTSET))
    mapper = FaultyMapper(state, settings.pop("takes_ms", 0))
    if isinstance(threads := settings.get("num_stream_threads"), list):
        settings["num_stream_threads"] = tuple(threads)
    if "dead_letter_queue" in settings:
        handler = PoisonHandler(settings.pop("dead_letter_queue"))
        settings["processing_exception_handler"] = handler
    config = StreamsConfig(
        application_id=name,
        bootstrap_servers=bootstrap,
        state_dir=state,
        **{
            "commit_interval_ms": 200,
            "consumer": SHORT_SESSIONS,
            **settings,
        },
    )
    topology = identified_topology(name, caching=caching, mapper=mapper)
    streams = KafkaStreams(topology, config, None if master is None else session(master))
    listener = PrintingListener()
    streams.set_global_state_restore_listener(listener)
    streams.set_standby_update_listener(listener)
    run_instance(streams, partial(report_changes, streams), partial(follow_commands, streams))


if __name__ == "__main__":
    main()
