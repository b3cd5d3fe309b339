"""Instances of an application with ids, as processes that report their tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from millstream.testing import EmbeddedKafka
from support.broker.topics import BrokerTopics
from support.machine.scripts import Program, Script, support_script
from support.running.topologies.identified import Identified


class Instances:
    """One application and its instances.

    Args:
        folder: an empty one, for the state of each instance and its stderr.
        settings: further settings of the application, and `dead_letters`: whether poison records go
            to its dead-letter queue.
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
        """The state directory of an instance."""
        return self._folder / name

    def start(self, name: str) -> Script:
        """Start an instance; the end of its context kills all its processes."""
        self._started += 1
        return support_script(
            "identified_instance.py",
            self._servers,
            self.application.application_id,
            str(self.state(name)),
            self._settings,
            home=self._folder / f"run-{self._started}-{name}",
        )

    @property
    def lag(self) -> int:
        """The number of uncommitted records."""
        return self.application.lag


def now(script: Script) -> dict[str, Any]:
    """The last report of an instance: its state, its active and its standby tasks."""
    assert script.is_running, script.errors
    return last_report(script)


def last_report(script: Program) -> dict[str, Any]:
    """The same for an instance that may have ended."""
    lines = [line for line in script.lines if line.startswith("now ")]
    return dict(json.loads(lines[-1].removeprefix("now "))) if lines else {}


def reported(script: Program, kind: str) -> list[list[Any]]:
    """All reports of this kind of an instance."""
    start = f"{kind} "
    return [json.loads(line.removeprefix(start)) for line in script.lines if line.startswith(start)]


def last_copied(script: Program, number: int) -> int:
    """The last offset of a changelog partition that a standby has read."""
    return max(
        (latest for place, latest, _ in reported(script, "copied") if place == number), default=-1
    )


def end_of(bootstrap: str, topic: str, number: int) -> int:
    """The end offset of a partition."""
    return next(
        high
        for place, (_, high) in BrokerTopics(bootstrap).ends([topic]).items()
        if place.partition == number
    )


#: The tasks with state.
COUNTING = [f"1_{number}" for number in range(4)]


def counting(script: Script, role: str = "active") -> list[str]:
    """The tasks with state of an instance in a role."""
    tasks: list[str] = now(script).get(role, [])
    return [task for task in tasks if task.startswith("1_")]


def is_running(script: Script) -> bool:
    """Whether an instance is RUNNING."""
    return bool(now(script).get("state") == "RUNNING")
