"""An application that keeps ids (`support.running.identified`), submitted to a cluster.

It is under load all the while."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from millstream import EXACTLY_ONCE_V2
from support.cluster.hosts import STATE, Host
from support.cluster.standalone import Cluster
from support.machine.scripts import Program
from support.running.identified import Account, Identified
from support.running.instances import end_of, last_copied, last_told, told
from support.waiting import wait_for

_SCRIPT = Path(__file__).parents[1] / "running" / "identified_instance.py"
_PARTITIONS = 4
_THREADS = 4
_TASKS = sorted(f"{part}_{number}" for part in (0, 1) for number in range(_PARTITIONS))
#: Those that have state.
STATEFUL = [task for task in _TASKS if task.startswith("1_")]
SESSION_TIMEOUT_S = 6
#: What is waited for takes seconds where nobody else uses the machine.
TIMEOUT_S = 180


class Submitted:
    """The application: its driver, its load, and what is known of its tasks.

    Args:
        cluster: where it runs.
        folder: an empty one.
        settings: further ones of the application.
    """

    def __init__(self, cluster: Cluster, folder: Path, **settings: Any) -> None:
        self.cluster = cluster
        self.records = Identified(cluster.kafka, folder)
        self._settings = {
            "num_stream_threads": _THREADS,
            "commit_interval_ms": 200,
            "consumer": {
                "session.timeout.ms": 1_000 * SESSION_TIMEOUT_S,
                "heartbeat.interval.ms": 1_000,
            },
            **settings,
        }
        self._is_exact = settings.get("processing_guarantee") == EXACTLY_ONCE_V2
        self._driver: Program | None = None

    @property
    def driver(self) -> Program:
        """What runs on the driver's host."""
        assert self._driver is not None, "it has not been submitted"
        return self._driver

    def submit(self) -> None:
        """Start a driver; does not wait for anything."""
        self._driver = self.cluster.submit(
            _SCRIPT,
            self.cluster.kafka.bootstrap_servers,
            self.records.application_id,
            str(STATE / "app"),
            json.dumps(self._settings),
        )

    def end(self) -> None:
        """End the driver, with what belongs to it, at once."""
        if self._driver is not None:
            with self._driver:
                self.cluster.driver.kill("")
            self._driver = None

    def on_hosts(self, role: str = "active") -> dict[str, list[str]]:
        """The tasks in that role by host, as the driver said last."""
        hosts: dict[str, dict[str, list[str]]] = last_told(self.driver).get("hosts", {})
        return {host: tasks[role] for host, tasks in hosts.items() if tasks[role]}

    def is_settled(self) -> bool:
        """Whether every task is active once, on hosts that are there, and has its standby."""
        assert self.driver.is_running, self.driver.errors[-4_000:]
        now = last_told(self.driver)
        standbys = STATEFUL if self._settings.get("num_standby_replicas") else []
        return (
            now.get("state") == "RUNNING"
            and now["active"] == _TASKS
            and now["standby"] == standbys
            and set(now["hosts"]) <= {host.name for host in self.cluster.workers if host.is_up}
        )

    def wait_settled(self) -> float:
        """Wait for that; the seconds that it took."""
        began = monotonic()
        wait_for(self.is_settled, TIMEOUT_S, lambda: f"settled: {last_told(self.driver)}")
        return monotonic() - began

    def together(self) -> list[str]:
        """The tasks that are active and standby on one host."""
        standby = self.on_hosts("standby")
        return [
            task
            for host, tasks in self.on_hosts().items()
            for task in tasks
            if task in standby.get(host, [])
        ]

    def wait_caught_up(self) -> float:
        """Wait until what is there now is committed, while more comes; the seconds it took."""
        began, ends = monotonic(), self.records.ends
        wait_for(
            lambda: self.records.committed >= ends,
            TIMEOUT_S,
            lambda: f"{ends} committed: {self.records.committed}; {last_told(self.driver)}",
        )
        return monotonic() - began

    def check(self) -> Account:
        """Nothing is lost, and exactly once nothing is repeated. The load must have stopped."""
        if self._is_exact:
            self.records.may_repeat = 0
        return self.records.check(TIMEOUT_S)

    def unread(self, host: Host) -> dict[int, int]:
        """How many changelog records the standbys of a dead host's tasks have not read, at most.

        Nobody has taken the tasks over yet.
        """
        (changelog,) = self.records.changelog_topics
        lost = [int(task[2:]) for task in self.on_hosts().get(host.name, []) if task in STATEFUL]
        return {
            number: end_of(self.records.bootstrap, changelog, number)
            - last_copied(self.driver, number)
            - 1
            for number in lost
        }

    def restorations(self) -> list[list[int]]:
        """Of each restoration so far: the partition, and how many records were read."""
        return told(self.driver, "restored")


@contextmanager
def submitted(cluster: Cluster, folder: Path, **settings: Any) -> Iterator[Submitted]:
    """The application, settled and under load until the end; then everything is there once."""
    application = Submitted(cluster, folder, **settings)
    with ExitStack() as last:
        last.callback(application.end)
        application.submit()
        application.wait_settled()
        with application.records.arriving():
            application.wait_caught_up()
            yield application
        application.check()
