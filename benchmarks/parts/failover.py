"""The time that processing stops when an instance is killed.

SIGKILL ends one of two instances, with and without standbys: all its processes, or only the driver.
In another case, it ends the driver of a single instance, which is restarted.

Each instance counts the records of half of the partitions, without a cache, so that every count is
output immediately. A few records per second are written to each partition. The result is the
longest time without output from one of the dead instance's partitions, from the kill until the
group is stable again, because threads whose driver was killed continue for a while.

After an instance is killed, the broker first waits for the session timeout. This time is the
same for all programs, and shown separately.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import marks
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from harness.broker import Cluster
from harness.load import Writer, create_topic
from harness.measure import Committed, close, failed, kill, started, wait_for
from programs import ENGINES, TITLES, Run

from millstream.kafka.partitioner import partition_for

RECORDS = 500_000
SMOKE_RECORDS = 5_000
ROUNDS = 1
PARTITIONS = 4
SESSION_MS = 6_000
SEED = 11

#: What is killed: all processes of an instance; only its driver; only its driver, which is then
#: restarted.
INSTANCE, DRIVER, AGAIN = "instance", "driver", "driver-again"
#: The interval of records for each partition.
_RECORD_INTERVAL_S = 0.02
#: Standbys catch up within this time.
_SETTLE_S = 5.0

_NOT_YET = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
_LINE = "{:12} {:>8} {:>5}  {:20} {:>10} {:>7} {:>9}"
_TIMES = ("detected s", "gap s", "beyond s")

_SETTINGS = {
    "statestore.cache.max.bytes": "0",
    "commit.interval.ms": "200",
    "consumer.session.timeout.ms": str(SESSION_MS),
    "consumer.heartbeat.interval.ms": "1000",
}


@dataclass(frozen=True, slots=True)
class FailoverResult:
    """The times of a run.

    Attributes:
        dies: what is killed, one of `INSTANCE`, `DRIVER` and `AGAIN`.
        detected_s: the time from the kill until the broker has changed the group.
        gap_s: the longest time without output from one of the partitions.
        restored: the number of restored records.
    """

    program: str
    dies: str
    standbys: int
    round: int
    records: int
    detected_s: float
    gap_s: float
    restored: int

    @property
    def beyond_s(self) -> float | None:
        """The part of the gap after the group has changed, if an instance was killed."""
        return self.gap_s - self.detected_s if self.dies == INSTANCE else None


class FailoverRounds:
    """The rounds on one broker."""

    def __init__(self, options: argparse.Namespace, cluster: Cluster, folder: Path) -> None:
        self.options = options
        self.records: int = options.records or (SMOKE_RECORDS if options.smoke else RECORDS)
        self.rounds: int = options.rounds or ROUNDS
        self.cluster = cluster
        self.folder = folder
        self.results: list[FailoverResult] = []

    def run(self) -> dict[str, Any]:
        """Run all rounds and print results; return the results to save."""
        print(
            f"failover: {self.records:,} keys on {PARTITIONS} partitions, session timeout "
            f"{SESSION_MS / 1000:.0f} s\n\n"
            f"{_LINE.format('dies', 'standbys', 'round', 'program', *_TIMES)} {'restored':>9}",
            flush=True,
        )
        for number in range(1, self.rounds + 1):
            for standbys in (0, 1):
                for program in self.options.programs:
                    if program in ENGINES:
                        self.one(program, standbys, number)
            if "ours" in self.options.programs:
                # In Kafka Streams, the driver and its threads are one process: the instance.
                for standbys in (0, 1):
                    self.one("ours", standbys, number, dies=DRIVER)
                self.again(number)
        return {
            "records": self.records,
            "session_timeout_s": SESSION_MS / 1000,
            "medians": self._medians(),
            "runs": [asdict(result) for result in self.results],
        }

    def one(self, program: str, standbys: int, number: int, dies: str = INSTANCE) -> None:
        """Run a program with two instances, one of which is killed."""
        name = f"{self.cluster.prefix}-failover-{dies}-{program}-{standbys}-{number}"
        one, other = (
            self._instance(program, standbys, number, name, each) for each in ("one", "other")
        )
        for topic in (one.input_topic, one.output_topic):
            create_topic(self.cluster.servers, topic, PARTITIONS)
        group = _Group(self.cluster, name, one.input_topic)
        with ExitStack() as running:
            dying = running.enter_context(started(one))
            staying = running.enter_context(started(other))

            def shared() -> bool:
                for run, process in ((one, dying), (other, staying)):
                    if process.poll() is not None:
                        raise failed(run, f"ended with code {process.returncode}")
                return sorted(map(len, group.partitions().values())) == [2, 2]

            wait_for(shared, one, "did not balance the partitions")
            self._fill(one)
            committed = Committed(self.cluster.servers, name, one.input_topic)
            wait_for(lambda: committed.total() >= self.records, one, "did not count everything")
            if standbys:
                time.sleep(_SETTLE_S)
            trickle = running.enter_context(_SteadyRecords(one))
            wait_for(lambda: len(trickle.seen_at) == PARTITIONS, one, "output no records")
            lost = group.partitions()["one"]
            killed_ms = marks.now_ms()
            if dies == DRIVER:
                dying.kill()
            else:
                kill(dying)
            wait_for(lambda: not group.is_whole(), other, "did not rebalance after the death")
            detected_ms = marks.now_ms()
            gap_s = self._gap_s(trickle, group, lost, killed_ms, other)
            close(other, staying)
        self._add_result(
            FailoverResult(
                program=program,
                dies=dies,
                standbys=standbys,
                round=number,
                records=self.records,
                detected_s=(detected_ms - killed_ms) / 1000,
                gap_s=gap_s,
                restored=_restored_after(killed_ms, other),
            )
        )
        self._delete_run(name, one, other)

    def again(self, number: int) -> None:
        """Run one instance, whose driver is killed and restarted immediately."""
        name = f"{self.cluster.prefix}-failover-again-{number}"
        run = self._instance("ours", 0, number, name, "one")
        for topic in (run.input_topic, run.output_topic):
            create_topic(self.cluster.servers, topic, PARTITIONS)
        group = _Group(self.cluster, name, run.input_topic)
        all_partitions = list(range(PARTITIONS))
        with ExitStack() as running:
            dying = running.enter_context(started(run))
            wait_for(lambda: group.is_whole(1), run, "did not start")
            self._fill(run)
            committed = Committed(self.cluster.servers, name, run.input_topic)
            wait_for(lambda: committed.total() >= self.records, run, "did not count everything")
            trickle = running.enter_context(_SteadyRecords(run))
            wait_for(lambda: len(trickle.seen_at) == PARTITIONS, run, "output no records")
            killed_ms = marks.now_ms()
            dying.kill()
            dying.wait()
            next_one = running.enter_context(started(run))
            wait_for(lambda: not group.is_whole(1), run, "did not leave the group")
            detected_ms = marks.now_ms()
            gap_s = self._gap_s(trickle, group, all_partitions, killed_ms, run)
            close(run, next_one)
        self._add_result(
            FailoverResult(
                program="ours",
                dies=AGAIN,
                standbys=0,
                round=number,
                records=self.records,
                detected_s=(detected_ms - killed_ms) / 1000,
                gap_s=gap_s,
                restored=_restored_after(killed_ms, run),
            )
        )
        self._delete_run(name, run)

    def _gap_s(
        self, trickle: _SteadyRecords, group: _Group, lost: list[int], killed_ms: int, run: Run
    ) -> float:
        """Wait for recovery; return the longest time without output of a partition."""
        wait_for(lambda: group.is_whole(1), run, "did not take over")
        whole_ms = marks.now_ms()
        wait_for(lambda: trickle.passed(lost, whole_ms), run, "did not continue")
        return max(trickle.longest_pause_ms(number, killed_ms) for number in lost) / 1000

    def _add_result(self, result: FailoverResult) -> None:
        self.results.append(result)
        times = _formatted(result.detected_s, result.gap_s, result.beyond_s)
        title = TITLES[result.program]
        line = _LINE.format(result.dies, result.standbys, result.round, title, *times)
        print(f"{line} {result.restored:>9,}", flush=True)

    def _delete_run(self, name: str, *runs: Run) -> None:
        self.cluster.delete_topics(name)
        for run in runs:
            shutil.rmtree(run.folder)

    def _instance(self, program: str, standbys: int, number: int, name: str, each: str) -> Run:
        return Run(
            program=program,
            job="count",
            round=number,
            application_id=name,
            bootstrap_servers=self.cluster.servers,
            input_topic=f"{name}-input",
            output_topic=f"{name}-output",
            records=self.records,
            folder=self.folder / f"{name}-{each}",
            settings={**_SETTINGS, "num.standby.replicas": str(standbys), "client.id": each},
        )

    def _fill(self, run: Run) -> None:
        numbers = list(range(self.records))
        random.Random(SEED).shuffle(numbers)
        writer = Writer(run.bootstrap_servers, run.input_topic)
        for number in numbers:
            writer.send(b"user-%08d" % number, b"visit")
        writer.flush()

    def _medians(self) -> dict[str, dict[str, dict[str, float]]]:
        table: dict[str, dict[str, dict[str, float]]] = {}
        print(f"\n{_LINE.format('medians', '', '', 'program', *_TIMES)}")
        for dies, standbys, program in dict.fromkeys(
            (run.dies, run.standbys, run.program) for run in self.results
        ):
            runs = [
                run
                for run in self.results
                if (run.dies, run.standbys, run.program) == (dies, standbys, program)
            ]
            detected_s = statistics.median(run.detected_s for run in runs)
            gap_s = statistics.median(run.gap_s for run in runs)
            beyond = [run.beyond_s for run in runs if run.beyond_s is not None]
            table.setdefault(f"{dies}, {standbys} standbys", {})[program] = {
                "detected_s": detected_s,
                "gap_s": gap_s,
            }
            times = _formatted(detected_s, gap_s, statistics.median(beyond) if beyond else None)
            print(_LINE.format(dies, standbys, "", TITLES[program], *times))
        return table


class _Group:
    """The consumer group as described by the broker."""

    def __init__(self, cluster: Cluster, name: str, topic: str) -> None:
        self._admin = cluster.admin
        self._name = name
        self._topic = topic

    def partitions(self) -> dict[str, list[int]]:
        """Return the input partitions of each instance; empty while the group rebalances."""
        found = self._describe()
        if found.state is not ConsumerGroupState.STABLE:
            return {}
        return {
            member.client_id.partition("-")[0]: [
                place.partition
                for place in member.assignment.topic_partitions
                if place.topic == self._topic
            ]
            for member in found.members
        }

    def is_whole(self, members: int = 2) -> bool:
        """Return whether all instances are members, and the group is stable."""
        found = self._describe()
        return found.state is ConsumerGroupState.STABLE and len(found.members) == members

    def _describe(self) -> Any:
        while True:
            try:
                return self._admin.describe_consumer_groups([self._name])[self._name].result(30)
            except KafkaException as error:
                # A new broker creates the topic for consumer groups on the first request.
                if error.args[0].code() not in _NOT_YET:
                    raise
                time.sleep(_RECORD_INTERVAL_S)


class _SteadyRecords:
    """Writes records to all partitions, and tracks when their counts are output."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._key_of = [_key_in(number) for number in range(PARTITIONS)]
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._write, self._read)
        ]
        #: The output time and the timestamp of each record, by partition.
        self.seen_at: dict[int, list[tuple[int, int]]] = {}

    def __enter__(self) -> _SteadyRecords:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(30)

    def passed(self, partitions: list[int], after_ms: int) -> bool:
        """Return whether all partitions have output later records.

        Later records are those that were written after `after_ms`.
        """
        return all(self._times(number, after_ms) for number in partitions)

    def longest_pause_ms(self, partition: int, after_ms: int) -> int:
        """Return the longest time between outputs.

        Starts with the last output before `after_ms`.
        """
        came_ms = sorted(at_ms for at_ms, _ in list(self.seen_at.get(partition, [])))
        before = [at_ms for at_ms in came_ms if at_ms <= after_ms][-1:]
        after = [at_ms for at_ms in came_ms if at_ms > after_ms]
        return max(later - sooner for sooner, later in pairwise([*before, *after]))

    def _times(self, partition: int, after_ms: int) -> list[int]:
        seen = self.seen_at.get(partition, [])
        return [at_ms for at_ms, written_ms in list(seen) if written_ms > after_ms]

    def _write(self) -> None:
        writer = Writer(self._run.bootstrap_servers, self._run.input_topic, linger_ms=0)
        while not self._ended.wait(_RECORD_INTERVAL_S):
            for key in self._key_of:
                writer.send(key, b"visit", marks.now_ms())
        writer.flush()

    def _read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._run.bootstrap_servers,
                "group.id": "trickle",
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "fetch.wait.max.ms": 10,
            }
        )
        number_of = {key: number for number, key in enumerate(self._key_of)}
        topic = self._run.output_topic
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        try:
            while not self._ended.is_set():
                record = consumer.poll(0.1)
                if record is None or record.error() is not None:
                    continue
                number = number_of.get(record.key() or b"")
                if number is not None:
                    pair = (marks.now_ms(), record.timestamp()[1])
                    self.seen_at.setdefault(number, []).append(pair)
        finally:
            consumer.close()


def _formatted(*times_s: float | None) -> list[str]:
    return ["" if each is None else f"{each:.2f}" for each in times_s]


def _restored_after(time_ms: int, run: Run) -> int:
    totals = [
        int(mark.split()[2])
        for mark, at_ms in marks.entries(run.marks)
        if mark.startswith("restored ") and at_ms >= time_ms
    ]
    return sum(totals)


def _key_in(partition: int) -> bytes:
    keys = (b"trickle-%d" % number for number in range(1_000))
    return next(key for key in keys if partition_for(key, PARTITIONS) == partition)
