"""Groups and assignments recorded from Kafka Streams' own assignors."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from millstream.assignment.task_assignor import (
    ApplicationState,
    AssignmentConfig,
    ProcessAssignment,
    ProcessState,
    TaskInfo,
)
from millstream.assignment.wire_format import LATEST_OFFSET
from millstream.record import TaskId


def recorded(file: Path) -> list[dict[str, Any]]:
    """The cases of a file, one per line."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def as_recorded(given: Mapping[uuid.UUID, ProcessAssignment]) -> dict[str, dict[str, list[str]]]:
    """An assignment in the form of the cases."""
    return {
        str(process_id): {
            "active": [str(task_id) for task_id in sorted(own.active)],
            "standby": [str(task_id) for task_id in sorted(own.standby)],
        }
        for process_id, own in given.items()
    }


def state_of(case: Mapping[str, Any]) -> ApplicationState:
    """The application state of a case without racks, as input for our assignors."""
    stateful = set(case["stateful"])
    processes = {
        uuid.UUID(process["id"]): ProcessState(
            process["threads"],
            client_tags=process["tags"],
            lags={TaskId.parse(name): lag for name, lag in process["lags"].items()},
        )
        for process in case["processes"]
    }
    return ApplicationState(
        tasks={
            TaskId.parse(t): TaskInfo(frozenset(), t in stateful) for t in sorted(case["tasks"])
        },
        processes=dict(sorted(processes.items())),
        config=AssignmentConfig(
            num_standby_replicas=case["standbys"],
            max_warmup_replicas=case["warmups"],
            acceptable_recovery_lag=case["acceptable"],
            rack_aware_assignment_tags=tuple(case["tags"]),
        ),
        now_ms=1_000,
    )


def random_case(random: Random) -> dict[str, Any]:
    """A random case without racks and without a result."""
    tasks = [
        f"{subtopology}_{partition}"
        for subtopology in range(random.randint(1, 3))
        for partition in range(random.randint(1, 8))
    ]
    stateful = [task for task in tasks if random.random() < 0.85]
    tags = random.choice([[], [], ["zone"], ["zone", "cluster"]])
    processes: list[dict[str, Any]] = [
        {
            "id": str(uuid.UUID(int=random.getrandbits(128), version=4)),
            "threads": random.randint(1, 3),
            "lags": {task: _random_lag(random) for task in stateful},
            "tags": {key: f"{key[0]}{random.randrange(3)}" for key in tags},
        }
        for _ in range(random.randint(1, 8))
    ]
    for task in stateful:
        if random.random() < 0.8:
            random.choice(processes)["lags"][task] = LATEST_OFFSET
    return {
        "processes": processes,
        "tasks": tasks,
        "stateful": stateful,
        "standbys": random.choice([0, 1, 2, 2, 3]),
        "warmups": random.choice([1, 2, 3, 12]),
        "acceptable": random.choice([0, 10, 10_000, 2**63 - 1]),
        "probing": False,
        "tags": tags,
    }


def _random_lag(random: Random) -> int:
    return random.choice([20_000, 20_000, 0, random.randrange(20), random.randrange(20_000)])
