"""The common part of instances that run as scripts: their reports on stdout, their commands on
stdin."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from millstream import (
    KafkaStreams,
    StreamsError,
    StreamsUncaughtExceptionHandlerResponse,
    ThreadMetadata,
)

#: Consumer settings with which other instances take over soon.
SHORT_SESSIONS = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000}

#: The number of slots of the session that Millstream starts, in addition to those of the settings.
_MOST_THREADS = 4


def emit(kind: str, content: Any) -> None:
    """Print a report: its name and JSON, on its own line even if several threads report."""
    print(f"{kind} {json.dumps(content)}\n", end="", flush=True)  # noqa: T201


def report_changes(streams: KafkaStreams) -> None:
    """Report the state of an application whenever it changes, as `now`: its state, tasks and
    processes, and the tasks of each host."""
    last = None
    while True:
        threads = streams.metadata_for_local_threads()
        now = {
            "state": streams.state.name,
            "active": sorted(str(task.task_id) for each in threads for task in each.active_tasks),
            "standby": sorted(str(task.task_id) for each in threads for task in each.standby_tasks),
            "pids": [each.pid for each in threads if each.pid],
            "hosts": _by_host(threads),
        }
        if now != last:
            emit("now", now)
            last = now
        time.sleep(0.1)


def _by_host(threads: Iterable[ThreadMetadata]) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for each in threads:
        if each.host is not None:
            tasks = found.setdefault(each.host, {"active": [], "standby": [], "settling": []})
            tasks["settling"] += sorted(
                f"{task.task_id} {task.state}"
                for task in (*each.active_tasks, *each.standby_tasks)
                if task.state not in ("RUNNING", "STANDBY")
            )
            tasks["active"] += sorted(str(task.task_id) for task in each.active_tasks)
            tasks["standby"] += sorted(str(task.task_id) for task in each.standby_tasks)
    return found


def follow_commands(streams: KafkaStreams) -> None:
    """Add and remove threads as the lines `add` and `remove` on stdin demand."""
    # sys.stdin has a lock, which this thread would hold at the interpreter's exit.
    while line := os.read(0, 1_000):
        for word in line.decode().split():
            threads = len(streams.metadata_for_local_threads())
            try:
                if word == "add" and threads < _MOST_THREADS:
                    streams.add_stream_thread()
                elif word == "remove" and threads > 1:
                    streams.remove_stream_thread(timedelta(seconds=30))
            except (StreamsError, TimeoutError) as error:
                emit("not changed", str(error))


def run_instance(instance: Any, *work: Callable[[], object]) -> None:
    """Run an application or subscription, whose failed threads are replaced, and other work in the
    background."""
    instance.set_uncaught_exception_handler(
        lambda _: StreamsUncaughtExceptionHandlerResponse.REPLACE_THREAD
    )
    for each in work:
        threading.Thread(target=each, daemon=True).start()
    instance.run()
