"""An application that keeps ids (`support.running.topologies.identified`), submitted to a cluster.

It is under load all the while."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from signal import SIGKILL
from time import monotonic
from typing import Any

from confluent_kafka import KafkaException

from millstream import EXACTLY_ONCE_V2
from millstream.record import TopicPartition
from support.broker.records import Places
from support.cluster.hosts import STATE, Host
from support.cluster.masters import Cluster
from support.machine.scripts import Program
from support.running.instances import last_told, told
from support.running.topologies.identified import Account, Identified
from support.waiting import wait_for

_SCRIPT = Path(__file__).parents[1] / "running" / "identified_instance.py"
_PARTITIONS = 4
_THREADS = 4
#: All of them.
TASKS = sorted(f"{part}_{number}" for part in (0, 1) for number in range(_PARTITIONS))
#: Those that have state.
STATEFUL = [task for task in TASKS if task.startswith("1_")]
SESSION_TIMEOUT_S = 10
#: What is waited for takes seconds where nobody else uses the machine.
TIMEOUT_S = 240
#: What a copy may lag behind without being cold, in changelog records: those of a few seconds.
_LAG = 200
#: What standbys lag behind under this load, at most.
_LITTLE = 100
#: How much of a log is shown.
_LINES = 40
#: How many records there are before anything happens.
_BEFORE = 20_000

#: What was measured, for who reads the output of the tests.
measured: list[str] = []


class Submitted:
    """The application: its driver, its load, and what is known of its tasks.

    Args:
        cluster: where it runs.
        folder: an empty one.
        spark: further settings of Spark's.
        settings: further ones of the application.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        spark: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self.cluster = cluster
        self._spark = spark
        self.records = Identified(cluster.kafka, folder)
        self._settings = {
            "num_stream_threads": _THREADS,
            "commit_interval_ms": 200,
            "acceptable_recovery_lag": _LAG,
            "log_level": "INFO",
            # The least: whoever waits for warm state elsewhere moves, and its copy goes, only then.
            "probing_rebalance_interval_ms": 60_000,
            "consumer": {
                "session.timeout.ms": 1_000 * SESSION_TIMEOUT_S,
                "heartbeat.interval.ms": 1_000,
                # A broker that was killed may let a group wait so long for members that are gone
                # (docs/operations/running.md, "Defects of brokers 4.3").
                "max.poll.interval.ms": 60_000,
            },
            **settings,
        }
        self._is_exact = settings.get("processing_guarantee") == EXACTLY_ONCE_V2
        self._driver: Program | None = None
        self._places = Places(cluster.kafka.bootstrap_servers)

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
            settings=self._spark,
        )

    def end(self) -> None:
        """End the driver's processes, at once."""
        if self._driver is not None:
            with self._driver:
                self._driver.signal_group(SIGKILL)
            self._driver = None

    def crash_drivers_host(self) -> None:
        """The driver's host loses its power, for longer than nobody could have noticed. Then it
        starts again, and the program is submitted as at first."""
        self.cluster.driver.die()
        self.end()
        self.cluster.driver.boot()
        self.submit()

    def on_hosts(self, role: str = "active") -> dict[str, list[str]]:
        """The tasks in that role by host, as the driver said last."""
        hosts: dict[str, dict[str, list[str]]] = last_told(self.driver).get("hosts", {})
        return {host: tasks[role] for host, tasks in hosts.items() if tasks[role]}

    def is_settled(self) -> bool:
        """Whether all threads are there, on hosts that are, and every task is active once and has
        its standby."""
        assert self.driver.is_running, self._told()
        now = last_told(self.driver)
        standbys = STATEFUL if self._settings.get("num_standby_replicas") else []
        return (
            now.get("state") == "RUNNING"
            and len(now["pids"]) == self._settings["num_stream_threads"]
            and now["active"] == TASKS
            and now["standby"] == standbys
            and set(now["hosts"]) <= {host.name for host in self.cluster.workers if host.is_up}
        )

    def wait_settled(self) -> None:
        """Wait for that. Then nobody has a task and its standby on one host."""
        wait_for(self.is_settled, TIMEOUT_S, lambda: f"settled: {self._told()}")
        assert not self.together(), last_told(self.driver)

    def busiest(self) -> Host:
        """The worker with the most tasks."""
        tasks = self.on_hosts()
        return max(self.cluster.workers, key=lambda host: len(tasks.get(host.name, [])))

    def together(self) -> list[str]:
        """The tasks that are active and standby on one host."""
        standby = self.on_hosts("standby")
        return [
            task
            for host, tasks in self.on_hosts().items()
            for task in tasks
            if task in standby.get(host, [])
        ]

    @contextmanager
    def measured(self, fault: str) -> Iterator[Callable[[], None]]:
        """A fault, which may cost what was not committed when it began. Then all goes on.

        Gives a function that waits until it does, where that is to be while the fault lasts.

        Args:
            fault: what the block does.
        """
        with self.records.fault():
            began, ends = monotonic(), self._ends()
            took: list[float] = []

            def recovered() -> None:
                wait_for(
                    lambda: self._is_committed(ends),
                    TIMEOUT_S,
                    lambda: f"committed up to {ends}; {self._told()}",
                )
                took.append(monotonic() - began)
                self.wait_settled()
                took.append(monotonic() - began)

            yield recovered
            if not took:
                recovered()
        measured.append(
            f"{fault}: what was written before is committed after {took[0]:.0f} s, all threads "
            f"and standbys are in place after {took[1]:.0f} s"
        )

    def _ends(self) -> dict[TopicPartition, int]:
        return {place: high for place, (_, high) in self._places.ends(self._inputs()).items()}

    def _is_committed(self, ends: Mapping[TopicPartition, int]) -> bool:
        try:
            committed = self._places.committed(self.records.application_id, self._inputs())
        except KafkaException:
            # A broker that has just started answers before it knows everything again.
            return False
        return all(committed[place] >= end for place, end in ends.items())

    def _inputs(self) -> list[str]:
        return [self.records.records, self.records.repartition_topic]

    def _told(self) -> str:
        if self._driver is None:
            return "no driver"
        lines = [line for line in self._driver.errors.splitlines() if " INFO " not in line]
        executors = "\n".join(self.cluster.executors_said())
        return f"{last_told(self._driver)}; {_end(lines)}\n{executors}\n{self._group()}"

    def _group(self) -> str:
        try:
            return self._places.group(self.records.application_id)
        except KafkaException as error:
            return f"the group is not told of: {error}"

    def check(self) -> Account:
        """Nothing is lost, and exactly once nothing is repeated. The load must have stopped."""
        if self._is_exact:
            self.records.may_repeat = self._written_again()
        try:
            return self.records.check(TIMEOUT_S)
        except AssertionError as error:
            error.add_note(self._told())
            raise

    def _written_again(self) -> int:
        """How many records of the input are there too often: what the load itself repeated."""
        topic = self.records.records
        again = len(self._places.read([topic])[topic]) - self.records.written
        if again:
            measured.append(f"the load has written {again} records again")
        return again

    def stateful_on(self, host: Host) -> list[int]:
        """The partitions whose stateful tasks are active on a host."""
        return [int(each[2:]) for each in self.on_hosts().get(host.name, []) if each in STATEFUL]

    def unread(self, partitions: Iterable[int]) -> dict[int, int]:
        """How many changelog records of these the standbys have not read, at most."""
        ends = self._changelog_ends()
        return {number: ends[number] - self._copied(number) for number in partitions}

    def wait_warm(self) -> None:
        """Wait until all standbys have read all but little of what they are to copy, and nobody
        else has: what a task leaves behind where it was before it moved would count as well."""
        placed, ends = None, self._changelog_ends()

        def is_warm() -> bool:
            nonlocal placed, ends
            now = self.on_hosts(), self.on_hosts("standby")
            if now != placed or not self.is_settled():
                placed, ends = now, self._changelog_ends()
            new = [high - end for high, end in zip(self._changelog_ends(), ends, strict=True)]
            return min(new) > 2 * _LAG and max(self.unread(range(_PARTITIONS)).values()) < _LITTLE

        wait_for(is_warm, TIMEOUT_S, lambda: f"warm: {self.unread(range(_PARTITIONS))}")

    def _changelog_ends(self) -> list[int]:
        """Where the changelog ends, partition by partition."""
        (changelog,) = self.records.changelog_topics
        ends = self._places.ends([changelog])
        return [high for _, (_, high) in sorted(ends.items())]

    def _copied(self, number: int) -> int:
        """Where the standby of a partition goes on to read, as it said last."""
        for line in reversed(self.driver.lines):
            what, _, rest = line.partition(" ")
            if what in ("copying", "copied"):
                place, offset, *_ = json.loads(rest)
                if place == number:
                    return int(offset) + (what == "copied")
        return 0

    def restorations(self) -> list[list[int]]:
        """Of each restoration so far: the partition, and how many records were read."""
        return [[int(each) for each in one] for one in told(self.driver, "restored")]

    def copies(self, number: int) -> str:
        """What was told last of copying and restoring a partition, in its order, and what threads
        logged of its task and of the group."""
        kinds = ("copying", "copied", "suspended", "restoring", "restored")
        starts = tuple(f"{kind} [{number}, " for kind in kinds)
        told = [line for line in self.driver.lines if line.startswith(starts)]
        logged = self.cluster.executors_logged(f"1_{number}")
        return "\n".join([*told[-_LINES:], *logged])


def _end(lines: Sequence[str]) -> str:
    return "\n".join(lines[-_LINES:])


@contextmanager
def submitted(
    cluster: Cluster, folder: Path, spark: Mapping[str, str] | None = None, **settings: Any
) -> Iterator[Submitted]:
    """The application, settled and under load until the end; then everything is there once."""
    application = Submitted(cluster, folder, spark, **settings)
    with ExitStack() as last:
        last.callback(application.end)
        application.submit()
        application.wait_settled()
        application.records.write(_BEFORE)
        with application.records.arriving():
            yield application
        application.check()
