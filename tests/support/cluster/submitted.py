"""An application with ids (`support.running.topologies.identified`), submitted to a cluster,
under constant load."""

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
from support.broker.topics import BrokerTopics
from support.cluster.hosts import STATE, Host
from support.cluster.masters import Cluster
from support.machine.scripts import Program
from support.running.instances import last_report, reported
from support.running.topologies.identified import Account, Identified
from support.waiting import wait_for

_SCRIPT = Path(__file__).parents[1] / "running" / "identified_instance.py"
_PARTITIONS = 4
_THREADS = 4
#: All tasks.
TASKS = sorted(f"{part}_{number}" for part in (0, 1) for number in range(_PARTITIONS))
#: Tasks with state.
STATEFUL = [task for task in TASKS if task.startswith("1_")]
SESSION_TIMEOUT_S = 10
#: The timeout of a recovery, which takes seconds on an idle machine.
TIMEOUT_S = 240
#: The acceptable recovery lag in changelog records: those of a few seconds.
_LAG = 200
#: The maximum lag of standbys under this load.
_LITTLE = 100
#: The number of log lines in messages.
_LINES = 40
#: The number of records before the first fault.
_BEFORE = 20_000

#: Measurements for the output of the tests.
measured: list[str] = []


class Submitted:
    """The application: its driver, its load, and the state of its tasks.

    Args:
        spark: further settings of Spark.
        settings: further settings of the application.
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
            # The minimum: moves to warm standbys, and the end of old copies, happen only at these
            # rebalances.
            "probing_rebalance_interval_ms": 60_000,
            "consumer": {
                "session.timeout.ms": 1_000 * SESSION_TIMEOUT_S,
                "heartbeat.interval.ms": 1_000,
                # After a broker was killed, a group may wait this long for missing members
                # (docs/operations/running.md, "Broker defects in Kafka 4.3").
                "max.poll.interval.ms": 60_000,
            },
            **settings,
        }
        self._is_exact = settings.get("processing_guarantee") == EXACTLY_ONCE_V2
        self._driver: Program | None = None
        self._places = BrokerTopics(cluster.kafka.bootstrap_servers)

    @property
    def driver(self) -> Program:
        """The program on the driver's host."""
        assert self._driver is not None, "the application has not been submitted"
        return self._driver

    def submit(self) -> None:
        """Start a driver without waiting for it."""
        self._driver = self.cluster.submit(
            _SCRIPT,
            self.cluster.kafka.bootstrap_servers,
            self.records.application_id,
            str(STATE / "app"),
            json.dumps(self._settings),
            settings=self._spark,
        )

    def end(self) -> None:
        """Kill the driver's processes."""
        if self._driver is not None:
            with self._driver:
                self._driver.signal_group(SIGKILL)
            self._driver = None

    def crash_driver_host(self) -> None:
        """Power the driver's host off, long enough to be noticed, boot it and submit the program
        again."""
        self.cluster.driver.power_off()
        self.end()
        self.cluster.driver.boot()
        self.submit()

    def on_hosts(self, role: str = "active") -> dict[str, list[str]]:
        """The tasks in a role by host, according to the driver's last report."""
        hosts: dict[str, dict[str, list[str]]] = last_report(self.driver).get("hosts", {})
        return {host: tasks[role] for host, tasks in hosts.items() if tasks[role]}

    def is_settled(self) -> bool:
        """Whether all threads run on live hosts, and every task is active once and has its
        standby."""
        assert self.driver.is_running, self._state_text()
        now = last_report(self.driver)
        standbys = STATEFUL if self._settings.get("num_standby_replicas") else []
        return (
            now.get("state") == "RUNNING"
            and len(now["pids"]) == self._settings["num_stream_threads"]
            and now["active"] == TASKS
            and now["standby"] == standbys
            and set(now["hosts"]) <= {host.name for host in self.cluster.workers if host.is_up}
        )

    def wait_settled(self) -> None:
        """Wait until the application is settled; no task may share a host with its standby then."""
        wait_for(self.is_settled, TIMEOUT_S, lambda: f"settled: {self._state_text()}")
        assert not self.together(), last_report(self.driver)

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
        """Apply a fault, then wait for the recovery.

        Records that were uncommitted at the beginning may be repeated. Yields a function that waits
        for the recovery, for callers that need it while the fault lasts.
        """
        with self.records.fault():
            began, ends = monotonic(), self._ends()
            took: list[float] = []

            def recovered() -> None:
                wait_for(
                    lambda: self._is_committed(ends),
                    TIMEOUT_S,
                    lambda: f"committed up to {ends}; {self._state_text()}",
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
            # A broker that has just started may not have loaded everything.
            return False
        return all(committed[place] >= end for place, end in ends.items())

    def _inputs(self) -> list[str]:
        return [self.records.records, self.records.repartition_topic]

    def _state_text(self) -> str:
        if self._driver is None:
            return "no driver"
        lines = [line for line in self._driver.errors.splitlines() if " INFO " not in line]
        executors = "\n".join(self.cluster.executor_output())
        return f"{last_report(self._driver)}; {_end(lines)}\n{executors}\n{self._group()}"

    def _group(self) -> str:
        try:
            group = self._places.group(self.records.application_id)
        except (KafkaException, AssertionError) as error:
            return f"the group cannot be described: {error}"
        members = (
            f"{member.member_id} of {member.host}: "
            f"{len(member.assignment.topic_partitions)} partitions"
            for member in group.members
        )
        return "\n".join([f"group: {group.state.name}", *members])

    def check(self) -> Account:
        """Check that no record is lost, or repeated under exactly-once.

        The load must have stopped.
        """
        if self._is_exact:
            self.records.may_repeat = self._written_again()
        try:
            return self.records.check(TIMEOUT_S)
        except AssertionError as error:
            error.add_note(self._state_text())
            raise

    def _written_again(self) -> int:
        """The number of duplicates in the input, caused by the load itself."""
        topic = self.records.records
        duplicates = len(self._places.read([topic])[topic]) - self.records.written
        if duplicates:
            measured.append(f"the load has written {duplicates} records twice")
        return duplicates

    def stateful_on(self, host: Host) -> list[int]:
        """The partitions whose stateful tasks are active on a host."""
        return [int(each[2:]) for each in self.on_hosts().get(host.name, []) if each in STATEFUL]

    def unread(self, partitions: Iterable[int]) -> dict[int, int]:
        """The maximum number of changelog records that standbys of these partitions have not
        read."""
        ends = self._changelog_ends()
        return {number: ends[number] - self._copied(number) for number in partitions}

    def wait_warm(self) -> None:
        """Wait until all standbys have caught up, and no other copy of the state is recent.

        A task that moves leaves a copy of its state behind, which must have fallen behind.
        """
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
        """The end of each changelog partition."""
        (changelog,) = self.records.changelog_topics
        ends = self._places.ends([changelog])
        return [high for _, (_, high) in sorted(ends.items())]

    def _copied(self, number: int) -> int:
        """The next offset of a partition's standby, according to its last report."""
        for line in reversed(self.driver.lines):
            what, _, rest = line.partition(" ")
            if what in ("copying", "copied"):
                place, offset, *_ = json.loads(rest)
                if place == number:
                    return int(offset) + (what == "copied")
        return 0

    def restorations(self) -> list[list[int]]:
        """All restorations so far: the partition and the number of records."""
        return [[int(each) for each in one] for one in reported(self.driver, "restored")]

    def copies(self, number: int) -> str:
        """The latest reports about copying and restoring a partition, and the log lines of its
        task."""
        kinds = ("copying", "copied", "suspended", "restoring", "restored")
        starts = tuple(f"{kind} [{number}, " for kind in kinds)
        reports = [line for line in self.driver.lines if line.startswith(starts)]
        logged = self.cluster.executor_log_lines(f"1_{number}")
        return "\n".join([*reports[-_LINES:], *logged])


def _end(lines: Sequence[str]) -> str:
    return "\n".join(lines[-_LINES:])


@contextmanager
def submitted(
    cluster: Cluster, folder: Path, spark: Mapping[str, str] | None = None, **settings: Any
) -> Iterator[Submitted]:
    """Run the application, settled and under load, until the end of the block; then check its
    output."""
    application = Submitted(cluster, folder, spark, **settings)
    with ExitStack() as last:
        last.callback(application.end)
        application.submit()
        application.wait_settled()
        application.records.write(_BEFORE)
        with application.records.continuous_input():
            yield application
        application.check()
