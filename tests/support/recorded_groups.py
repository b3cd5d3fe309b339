"""Groups that Kafka Streams' own assignors were given, and what they decided."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.assignment.task_assignor import ProcessAssignment


def recorded(file: Path) -> list[dict[str, Any]]:
    """The cases of a file, one a line."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def shown(given: Mapping[uuid.UUID, ProcessAssignment]) -> dict[str, dict[str, list[str]]]:
    """An assignment as the cases have it."""
    return {
        str(process_id): {
            "active": [str(task_id) for task_id in sorted(mine.active)],
            "standby": [str(task_id) for task_id in sorted(mine.standby)],
        }
        for process_id, mine in given.items()
    }
