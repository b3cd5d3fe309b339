"""`map_async` on a real broker, in processes that are killed and paused with calls in flight."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState
from support.machine.scripts import Script
from support.running.parallel_application import ParallelInstances
from support.running.topologies.work_log import out_of_order, overlapping
from support.waiting import wait_for

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from millstream.testing import EmbeddedKafka

KEYS = 50
#: A restarted process takes its place in the group at once.
STATIC = {"group.instance.id": "one", "session.timeout.ms": 10_000, "heartbeat.interval.ms": 1_000}


def application(
    kafka: EmbeddedKafka, folder: Path, kind: str, guarantee: str, **settings: Any
) -> ParallelInstances:
    """Up to 20 calls of up to 50 ms in each of two tasks, in processes without Spark."""
    return ParallelInstances(
        kafka,
        folder,
        kind,
        partitions=2,
        keys=KEYS,
        alone=True,
        most_ms=50,
        processing_guarantee=guarantee,
        # Each count must be visible.
        statestore_cache_max_bytes=0,
        calls={"concurrency": 20},
        **settings,
    )


def wait_for_progress(running: ParallelInstances, one: Script) -> None:
    """Wait for a commit, and then for further completed calls."""
    left = running.left
    wait_for(lambda: not one.is_running or running.left < left - 200, 60, "the instance commits")
    done = running.done()
    wait_for(
        lambda: not one.is_running or running.done() > done + 20,
        60,
        lambda: f"more is done than {done}; {running.left} left",
    )
    assert one.is_running, one.errors


def kill_and_restart(running: ParallelInstances, kills: int) -> None:
    """Kill an instance repeatedly with calls in flight, and finally let it process everything."""
    for _ in range(kills):
        with running.start("one") as one:
            wait_for_progress(running, one)
            one.kill()
    with running.start("one") as one:
        wait_for(
            lambda: not one.is_running or running.left == 0, 60, lambda: f"{running.left} left"
        )
        one.signal(signal.SIGTERM)
        assert one.wait_ended(30) == 0, one.errors
    assert repeated_starts(running) > 0, "no instance was killed with calls in flight"


def repeated_starts(running: ParallelInstances) -> int:
    """The number of repeated starts of calls."""
    written = sum(running.records.written.values())
    return sum(map(len, running.work().values())) - written


@pytest.mark.extended
@pytest.mark.parametrize(
    "kind",
    [
        "mapped",
        pytest.param("counted_before", marks=pytest.mark.slow),
        pytest.param("counted_behind", marks=pytest.mark.slow),
    ],
)
def test_exactly_once_with_calls_in_flight(kafka: EmbeddedKafka, tmp_path: Path, kind: str) -> None:
    """Goal: read-committed consumers see the results of sequential calls: each result once, in
    order within each key; also with a store upstream or downstream.

    Method: repeated SIGKILL with calls in flight. The counts of stores equal the numbers of the
    records, so a record counted twice is as visible as a lost one.
    """
    running = application(kafka, tmp_path, kind, EXACTLY_ONCE_V2, consumer=STATIC)
    # With a store upstream, a commit includes all of its input: 1,000 records and more.
    running.records.write(4_000 if kind == "mapped" else 12_000)
    kill_and_restart(running, kills=2)
    assert running.output() == {k: list(range(n)) for k, n in running.records.written.items()}
    assert overlapping(running.work()) == []


def test_at_least_once_with_calls_in_flight(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: no record is lost, and repetitions are in order within their key.

    Method: the same with at-least-once.
    """
    running = application(kafka, tmp_path, "mapped", AT_LEAST_ONCE, consumer=STATIC)
    running.records.write(4_000)
    kill_and_restart(running, kills=2)
    output = running.output()
    for key, count in running.records.written.items():
        assert set(output[key]) == set(range(count))
        assert out_of_order(output[key]) == [], key
    assert overlapping(running.work()) == []


@pytest.mark.slow
def test_a_zombie_with_calls_in_flight(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: a process paused for longer than its session, with calls in flight that others have
    repeated in the meantime, commits nothing and writes nothing that read-committed consumers see;
    afterwards it rejoins.

    Method: SIGSTOP until the other process has processed everything; SIGCONT, and more records for
    both.
    """
    running = application(kafka, tmp_path, "mapped", EXACTLY_ONCE_V2)
    running.records.write(4_000)
    with running.start("zombie") as zombie:
        wait_for_progress(running, zombie)
        zombie.signal(signal.SIGSTOP)
        with running.start("other") as other:
            wait_for(
                lambda: not other.is_running or running.left == 0,
                60,
                "the other instance processes everything",
            )
            assert other.is_running, other.errors
            zombie.signal(signal.SIGCONT)
            wait_for(lambda: shared(running), 60, "both have a partition")
            running.records.write(500)
            wait_for(lambda: running.left == 0, 60, "everything is committed")
            for each in (zombie, other):
                each.signal(signal.SIGTERM)
                assert each.wait_ended(30) == 0, each.errors
    assert repeated_starts(running) > 0, "nothing was in flight"
    assert running.output() == {k: list(range(n)) for k, n in running.records.written.items()}


def shared(running: ParallelInstances) -> bool:
    """Whether two members have a partition each, and no rebalance is in progress."""
    found = running.places.group(running.name)
    owned = [len(member.assignment.topic_partitions) for member in found.members]
    return found.state == ConsumerGroupState.STABLE and owned == [1, 1]
