"""One instance of an application that keeps ids (`support.running.topologies.identified`), a script
that says what its tasks do.

    python identified_instance.py BOOTSTRAP NAME STATE SETTINGS

SETTINGS are those of the application, as JSON, and `master`, where Spark runs, `takes_ms`, how long
each id takes in the first sub-topology, and `log_level`, from which on it logs. Threads that fail
are replaced. The lines `add` and `remove` on stdin change how many there are.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millstream import (
    DeadLetter,
    ErrorContext,
    HandlerResponse,
    KafkaStreams,
    StreamsConfig,
    StreamsUncaughtExceptionHandlerResponse,
)
from millstream.processor.handlers import HandlerAnswer
from millstream.spark.sessions.free_slots import free_slots
from support.running.telling import obey, tell, tell_changes
from support.running.topologies.identified import POISON, identified_topology
from support.waiting import wait_for


class Told:
    """A listener for restorations and standbys that prints what it hears."""

    def on_restore_start(self, place: Any, store: str, start: int, end: int) -> None:
        tell("restoring", [place.partition, start, end])

    def on_batch_restored(self, place: Any, store: str, end: int, count: int) -> None: ...

    def on_restore_end(self, place: Any, store: str, total: int) -> None:
        tell("restored", [place.partition, total])

    def on_update_start(self, place: Any, store: str, start: int) -> None:
        tell("copying", [place.partition, start])

    def on_batch_loaded(
        self, place: Any, store: str, task_id: Any, batch_end: int, count: int, end: int
    ) -> None:
        tell("copied", [place.partition, batch_end, count])

    def on_update_suspended(
        self, place: Any, store: str, offset: int, end: int, reason: Any
    ) -> None:
        tell("suspended", [place.partition, reason])


class Misbehaves:
    """A function of the user's: it fails once, or takes long once, each time that a file appears,
    which it removes.

    Args:
        state: what the names of the files begin with.
        takes_ms: how long it always takes.
    """

    def __init__(self, state: str, takes_ms: int = 0) -> None:
        self._takes_s = takes_ms / 1_000
        self._fails = Path(f"{state}-fails")
        self._slow = Path(f"{state}-slow")

    def __call__(self, value: str) -> str:
        if self._fails.exists():
            self._fails.unlink(missing_ok=True)
            raise ValueError("only once")
        if self._slow.exists():
            seconds = float(self._slow.read_text() or 0)
            self._slow.unlink(missing_ok=True)
            time.sleep(seconds)
        if self._takes_s:
            time.sleep(self._takes_s)
        return value


class SetsPoisonAside:
    """A handler: what is no id goes to the dead-letter queue; any other error ends the thread."""

    def __init__(self, queue: str) -> None:
        self._queue = queue

    def __call__(self, context: ErrorContext, record: Any, error: Exception) -> HandlerAnswer:
        if context.source_value != POISON:
            return HandlerResponse.FAIL
        letter = DeadLetter.of(context, error, self._queue)
        return HandlerResponse.CONTINUE.with_dead_letters(letter)


def session(master: str) -> SparkSession:
    """One of a cluster, whose executors have two slots each."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    for name in ("host", "bindAddress"):
        builder = builder.config(f"spark.driver.{name}", "127.0.0.1")
    for name, value in (("executor.cores", "2"), ("cores.max", "2"), ("executor.memory", "512m")):
        builder = builder.config(f"spark.{name}", value)
    made = builder.getOrCreate()
    wait_for(lambda: free_slots(made).free >= 2, 90, "an executor is there")
    return made


def main() -> None:
    bootstrap, name, state, given = sys.argv[1:]
    settings = json.loads(given)
    caching, master = settings.pop("caching", True), settings.pop("master", None)
    logging.getLogger("millstream").setLevel(settings.pop("log_level", logging.NOTSET))
    mapper = Misbehaves(state, settings.pop("takes_ms", 0))
    if isinstance(threads := settings.get("num_stream_threads"), list):
        settings["num_stream_threads"] = tuple(threads)
    if "dead_letter_queue" in settings:
        handler = SetsPoisonAside(settings.pop("dead_letter_queue"))
        settings["processing_exception_handler"] = handler
    config = StreamsConfig(
        application_id=name,
        bootstrap_servers=bootstrap,
        state_dir=state,
        **{
            "commit_interval_ms": 200,
            "consumer": {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
            **settings,
        },
    )
    topology = identified_topology(name, caching=caching, mapper=mapper)
    streams = KafkaStreams(topology, config, None if master is None else session(master))
    listener = Told()
    streams.set_global_state_restore_listener(listener)
    streams.set_standby_update_listener(listener)
    streams.set_uncaught_exception_handler(
        lambda _: StreamsUncaughtExceptionHandlerResponse.REPLACE_THREAD
    )
    for told in (tell_changes, obey):
        threading.Thread(target=told, args=(streams,), daemon=True).start()
    streams.run()


if __name__ == "__main__":
    main()
