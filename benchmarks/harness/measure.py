"""Runs a program, and measures its time from outside.

The clock starts when the program decodes its first record, and stops when the committed offsets of
the consumer group have reached the end of every partition, according to the broker. When the last
record has been decoded, SIGTERM is sent to the program, which then commits immediately, so that no
program waits for the commit interval.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import marks
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from programs import TITLES, Run

T = TypeVar("T")

POLL_S = 0.02
START_DEADLINE_S = 120.0
CLOSE_DEADLINE_S = 60.0
#: The delay of SIGTERM after the last record has been decoded. A decoded record that is not yet
#: processed at SIGTERM would not be committed.
SIGTERM_DELAY_S = 0.1
#: The deadline of a step of a measurement.
STEP_DEADLINE_S = 180.0
#: A slower program is considered stuck.
MIN_RECORDS_PER_S = 1_000
#: The steady rate excludes the records up to this fraction.
WARM_UP_FRACTION = 0.25


class RunFailedError(Exception):
    """A program ended early, or did not finish in time.

    The message ends with its output.
    """


@dataclass(frozen=True, slots=True)
class Sample:
    """The number of committed records at a time, in all topics of the group."""

    at_ms: int
    committed: int


@dataclass(frozen=True, slots=True)
class Measured:
    """The times of a run.

    Attributes:
        start_s: the time from the start of the process to the first decoded record.
        decoded_s: the time from there to the last decoded record; None if the program did not
            report it.
        committed_s: the time from the first decoded record until everything is committed.
        rate: records per second over `committed_s`: the main result.
        steady_rate: records per second after the first quarter of the records, without the warm-up;
            None if there is no commit between the first quarter and the end.
    """

    program: str
    job: str
    round: int
    records: int
    start_s: float
    decoded_s: float | None
    committed_s: float
    rate: float
    steady_rate: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Committed:
    """Reads the committed offsets of a group.

    All topics must have the same partitions.
    """

    def __init__(self, bootstrap_servers: str, group: str, *read: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})
        self._group = group
        partitions = self._admin.list_topics(read[0], timeout=30).topics[read[0]].partitions
        self._partitions = [
            TopicPartition(topic, number) for topic in read for number in partitions
        ]

    def total(self) -> int:
        """Return the committed records; 0 while the group does not exist."""
        request = ConsumerGroupTopicPartitions(self._group, self._partitions)
        try:
            future = self._admin.list_consumer_group_offsets([request])[self._group]
            offsets = future.result(10).topic_partitions
        except KafkaException:
            # The group has no coordinator before its first member joins.
            return 0
        return sum(max(0, partition.offset) for partition in offsets)


def records_on(bootstrap_servers: str, topic: str) -> int:
    """Return the number of records in a topic without transactions or deletions."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "records-on"})
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
            for number in partitions
        ]
        return sum(high - low for low, high in ends)
    finally:
        consumer.close()


@contextmanager
def started(run: Run) -> Iterator[subprocess.Popen[bytes]]:
    """Start the process of a run, and kill it at the end if it is still running."""
    run.folder.mkdir(parents=True, exist_ok=True)
    with run.log.open("ab") as log:
        # In a new session, so that a signal only reaches the program and its children.
        process = subprocess.Popen(
            run.command(),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=run.environment(),
        )
        try:
            yield process
        finally:
            kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to a running program and its children."""
    if process.poll() is not None:
        return
    for pid in session_of(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def session_of(leader: int) -> list[int]:
    """Return the processes of a session, starting with its leader.

    Spark's Python workers leave the process group, but not the session.
    """
    pids = [leader]
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name in parentheses may contain anything; the session is the fourth field after
            # it.
            session = stat.read_text().rpartition(")")[2].split()[3]
            if int(session) == leader and int(stat.parent.name) != leader:
                pids.append(int(stat.parent.name))
    return pids


def close(run: Run, process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to a program, and wait for its end.

    Raises:
        RunFailedError: the program does not end.
    """
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(CLOSE_DEADLINE_S)
    except subprocess.TimeoutExpired:
        raise failed(run, "did not end after SIGTERM") from None


def measure(run: Run) -> Measured:
    """Start the program, wait until everything is committed, and close it.

    Raises:
        RunFailedError: the program ended early, or did not finish in time.
    """
    committed = Committed(run.bootstrap_servers, run.application_id, *run.read_topics)
    started_ms = marks.now_ms()
    with started(run) as process:
        samples = _watch(run, process, committed)
        try:
            process.wait(CLOSE_DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise failed(run, "did not end after SIGTERM") from None
    return _times(run, started_ms, samples)


def _watch(run: Run, process: subprocess.Popen[bytes], committed: Committed) -> list[Sample]:
    """Sample the group's offsets until they reach the end.

    Sends SIGTERM after the last record.
    """
    samples: list[Sample] = []
    is_closing = False
    deadline = time.monotonic() + START_DEADLINE_S + run.records / MIN_RECORDS_PER_S
    while time.monotonic() < deadline:
        total = committed.total()
        if not samples or samples[-1].committed != total:
            samples.append(Sample(marks.now_ms(), total))
        if not is_closing and run.closes_on in marks.read(run.marks):
            time.sleep(SIGTERM_DELAY_S)
            process.send_signal(signal.SIGTERM)
            is_closing = True
        is_over = is_closing or run.closes_on == "last"
        if total >= run.records and is_over and run.is_complete_when_committed:
            if not is_closing:
                process.send_signal(signal.SIGTERM)
            return samples
        if process.poll() is not None:
            total = committed.total()
            if is_closing and total >= run.records:
                # The end of an internal topic moves, and includes transaction markers.
                if samples[-1].committed != total:
                    samples.append(Sample(marks.now_ms(), total))
                return samples
            raise failed(run, f"ended with code {process.returncode} after {total:,} records")
        time.sleep(POLL_S)
    raise failed(run, f"committed only {samples[-1].committed:,} of {run.records:,} records")


def _times(run: Run, started_ms: int, samples: list[Sample]) -> Measured:
    seen = marks.read(run.marks)
    if "first" not in seen:
        raise failed(run, "committed everything without marking its first record")
    end = samples[-1]
    took_ms = end.at_ms - seen["first"]
    warm = next(s for s in samples if s.committed >= WARM_UP_FRACTION * end.committed)
    steady = None
    if warm is not end:
        part = 1 - warm.committed / end.committed
        steady = part * run.records * 1000 / (end.at_ms - warm.at_ms)
    return Measured(
        program=run.program,
        job=run.title,
        round=run.round,
        records=run.records,
        start_s=(seen["first"] - started_ms) / 1000,
        decoded_s=(seen["last"] - seen["first"]) / 1000 if "last" in seen else None,
        committed_s=took_ms / 1000,
        rate=run.records * 1000 / took_ms,
        steady_rate=steady,
    )


def wait_for(
    condition: Callable[[], T | None], run: Run, failure: str, deadline_s: float = STEP_DEADLINE_S
) -> T:
    """Wait for the first true result of a condition of a run.

    Args:
        condition: called repeatedly; its exceptions end the wait.
        failure: the failure that is reported at the deadline.

    Raises:
        RunFailedError: the condition was not fulfilled before the deadline.
    """
    deadline = time.monotonic() + deadline_s
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise failed(run, failure)
        time.sleep(POLL_S)
    return result


def failed(run: Run, failure: str) -> RunFailedError:
    """Return an error with the failure of a run and the end of its program's output."""
    tail = run.log.read_text(errors="replace")[-2000:] if run.log.exists() else ""
    return RunFailedError(
        f"{TITLES[run.program]} {failure} (job {run.title}, round {run.round}). "
        f"Its output ends:\n{tail}"
    )
