"""Instances of one application that keeps ids, as processes that say what their tasks do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millstream.testing import EmbeddedKafka
from support.broker.records import Places
from support.machine.scripts import Program, Script
from support.running.topologies.identified import Identified

_ROOM = Path(__file__).parent


class Instances:
    """One application and the instances that run it.

    Args:
        kafka: the broker.
        folder: an empty one, for the state of each instance and what it writes to stderr.
        settings: further settings of the application, and `dead_letters`: whether records that
            are no ids go to its dead-letter queue.
    """

    def __init__(self, kafka: EmbeddedKafka, folder: Path, **settings: Any) -> None:
        self.application = Identified(kafka, folder)
        self._servers = kafka.bootstrap_servers
        self._folder = folder
        if settings.pop("dead_letters", False):
            settings["dead_letter_queue"] = self.application.dead_letter_queue
        self._settings = json.dumps(settings)
        self._started = 0

    def state(self, name: str) -> Path:
        """Where an instance has its state."""
        return self._folder / name

    @contextmanager
    def start(self, name: str) -> Iterator[Script]:
        """An instance, which is killed at the end with all its processes unless it has ended."""
        with self.started(name) as script:
            yield script

    def started(self, name: str) -> Script:
        """An instance; whoever starts it ends it."""
        self._started += 1
        return Script(
            _ROOM / "identified_instance.py",
            self._servers,
            self.application.application_id,
            str(self.state(name)),
            self._settings,
            home=self._folder / f"run-{self._started}-{name}",
            imports=_ROOM.parents[1],
        )

    @property
    def lag(self) -> int:
        """How many records are not committed yet."""
        return self.application.lag


def now(script: Script) -> dict[str, Any]:
    """What an instance said last: its state, its active and its standby tasks."""
    assert script.is_running, script.errors
    return last_told(script)


def last_told(script: Program) -> dict[str, Any]:
    """The same of one that may have ended."""
    told = [line for line in script.lines if line.startswith("now ")]
    return dict(json.loads(told[-1].removeprefix("now "))) if told else {}


def told(script: Program, what: str) -> list[list[Any]]:
    """Everything of that kind that an instance has said."""
    start = f"{what} "
    return [json.loads(line.removeprefix(start)) for line in script.lines if line.startswith(start)]


def last_copied(script: Program, number: int) -> int:
    """The last offset of a changelog partition that a standby has read."""
    return max((last for place, last, _ in told(script, "copied") if place == number), default=-1)


def end_of(bootstrap: str, topic: str, number: int) -> int:
    """Where a partition ends."""
    return next(
        high
        for place, (_, high) in Places(bootstrap).ends([topic]).items()
        if place.partition == number
    )


#: The tasks that have state.
COUNTING = [f"1_{number}" for number in range(4)]


def counting(script: Script, role: str = "active") -> list[str]:
    """The tasks with state that an instance has in that role."""
    tasks: list[str] = now(script).get(role, [])
    return [task for task in tasks if task.startswith("1_")]


def is_running(script: Script) -> bool:
    """Whether an instance is RUNNING."""
    return bool(now(script).get("state") == "RUNNING")
