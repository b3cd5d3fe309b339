"""What an instance that is a script says on stdout, for whoever runs it."""

from __future__ import annotations

import json
import time
from typing import Any

from millstream import KafkaStreams


def tell(what: str, told: Any) -> None:
    """Say one thing: its name and JSON, on a line of its own although several threads tell."""
    print(f"{what} {json.dumps(told)}\n", end="", flush=True)  # noqa: T201


def tell_changes(streams: KafkaStreams) -> None:
    """Say for ever, as `now`, what has become of an application: its state, tasks and processes."""
    last = None
    while True:
        threads = streams.metadata_for_local_threads()
        now = {
            "state": streams.state.name,
            "active": sorted(str(task.task_id) for each in threads for task in each.active_tasks),
            "standby": sorted(str(task.task_id) for each in threads for task in each.standby_tasks),
            "pids": [each.pid for each in threads if each.pid],
        }
        if now != last:
            tell("now", now)
            last = now
        time.sleep(0.1)
