"""`map_async` on a real broker, in processes that are killed and paused with calls in flight."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient
from support.machine.scripts import Script
from support.running.parallel_instances import ParallelInstances
from support.running.topologies.work_log import out_of_order, overlapping
from support.waiting import wait_for

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from millstream.testing import EmbeddedKafka

KEYS = 50
#: So that one who comes back takes its place in the group at once.
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
        # Each count is to be seen.
        statestore_cache_max_bytes=0,
        calls={"concurrency": 20},
        **settings,
    )


def wait_until_it_works(running: ParallelInstances, one: Script) -> None:
    """Wait until more is committed than now, and after that even more is done."""
    left = running.left
    wait_for(lambda: not one.is_running or running.left < left - 200, 60, "it commits")
    done = running.done()
    wait_for(
        lambda: not one.is_running or running.done() > done + 20,
        60,
        lambda: f"more is done than {done}; {running.left} left",
    )
    assert one.is_running, one.errors


def kill_and_restart(running: ParallelInstances, kills: int) -> None:
    """Kill it again and again with calls in flight, and let it do everything at last."""
    for _ in range(kills):
        with running.start("one") as one:
            wait_until_it_works(running, one)
            one.kill()
    with running.start("one") as one:
        wait_for(
            lambda: not one.is_running or running.left == 0, 60, lambda: f"{running.left} left"
        )
        one.signal(signal.SIGTERM)
        assert one.wait_ended(30) == 0, one.errors
    assert again(running) > 0, "nobody was killed with calls in flight"


def again(running: ParallelInstances) -> int:
    """How often work was begun that had been begun before."""
    written = sum(running.records.written.values())
    return sum(map(len, running.work().values())) - written


@pytest.mark.parametrize(
    "kind",
    [
        "mapped",
        pytest.param("counted_before", marks=pytest.mark.slow),
        pytest.param("counted_behind", marks=pytest.mark.slow),
    ],
)
def test_exactly_once_with_calls_in_flight(kafka: EmbeddedKafka, tmp_path: Path, kind: str) -> None:
    """Goal: whoever reads committed records sees what one call after the other would have
    written: each result once, those of a key in order; also behind and before a store.

    Method: SIGKILL with calls in flight, again and again. The counts of stores are the numbers
    of the records, so a record that is counted twice is as visible as one that is lost.
    """
    running = application(kafka, tmp_path, kind, EXACTLY_ONCE_V2, consumer=STATIC)
    # With a store before the calls a commit is of all that were taken: 1,000 and more.
    running.records.write(4_000 if kind == "mapped" else 12_000)
    kill_and_restart(running, kills=2)
    assert running.output() == {k: list(range(n)) for k, n in running.records.written.items()}
    assert overlapping(running.work()) == []


def test_at_least_once_with_calls_in_flight(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: nothing is lost, and what is repeated is repeated in the order of its key.

    Method: the same, at least once.
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
    """Goal: a process that stood still for longer than its session, with calls in flight that
    others have made meanwhile, commits nothing and writes nothing that anybody sees who reads
    committed records; and it takes part again.

    Method: SIGSTOP, until the other one has done all; SIGCONT, and more records for both.
    """
    running = application(kafka, tmp_path, "mapped", EXACTLY_ONCE_V2)
    running.records.write(4_000)
    with running.start("zombie") as zombie:
        wait_until_it_works(running, zombie)
        zombie.signal(signal.SIGSTOP)
        with running.start("other") as other:
            wait_for(lambda: not other.is_running or running.left == 0, 60, "the other does all")
            assert other.is_running, other.errors
            zombie.signal(signal.SIGCONT)
            wait_for(lambda: shared(running), 60, "both have a partition")
            running.records.write(500)
            wait_for(lambda: running.left == 0, 60, "all is committed")
            for each in (zombie, other):
                each.signal(signal.SIGTERM)
                assert each.wait_ended(30) == 0, each.errors
    assert again(running) > 0, "nothing was in flight"
    assert running.output() == {k: list(range(n)) for k, n in running.records.written.items()}


def shared(running: ParallelInstances) -> bool:
    """Whether two members have a partition each, and nothing moves."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    (answer,) = admin.describe_consumer_groups([running.name]).values()
    found = answer.result(30)
    owned = [len(member.assignment.topic_partitions) for member in found.members]
    return found.state == ConsumerGroupState.STABLE and owned == [1, 1]
