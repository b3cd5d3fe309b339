"""What an instance that is a script says on stdout, for whoever runs it, and what it is told."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from millstream import KafkaStreams, StreamsError, ThreadMetadata

#: As many as the session that Millstream starts has slots for, beside those of the settings.
_MOST_THREADS = 4


def tell(what: str, told: Any) -> None:
    """Say one thing: its name and JSON, on a line of its own although several threads tell."""
    print(f"{what} {json.dumps(told)}\n", end="", flush=True)  # noqa: T201


def tell_changes(streams: KafkaStreams) -> None:
    """Say for ever, as `now`, what has become of an application: its state, tasks and processes,
    and which tasks are on which host."""
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
            tell("now", now)
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


def obey(streams: KafkaStreams) -> None:
    """For ever change how many threads it has, as the lines `add` and `remove` on stdin say."""
    # Not by sys.stdin, whose lock this thread would hold when the interpreter ends.
    while line := os.read(0, 1_000):
        for word in line.decode().split():
            threads = len(streams.metadata_for_local_threads())
            try:
                if word == "add" and threads < _MOST_THREADS:
                    streams.add_stream_thread()
                elif word == "remove" and threads > 1:
                    streams.remove_stream_thread(timedelta(seconds=30))
            except (StreamsError, TimeoutError) as error:
                tell("not changed", str(error))
