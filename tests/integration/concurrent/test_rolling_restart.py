"""Decaton's own three checks of its guarantees, on subscriptions: after a rolling restart of three
instances everything is processed, no key concurrently, and redelivery keeps the order within keys.

Semantics: the processing guarantees of Decaton's test suite (`AtLeastOnceDelivery`,
`SerialProcessing`, `ProcessOrdering`).
"""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.machine.scripts import Script
from support.running.parallel_application import ParallelInstances
from support.running.topologies.work_log import read_work
from support.waiting import wait_for

from millstream.testing import EmbeddedKafka

NAMES = ("a", "b", "c")
PARTITIONS = 8
KEYS = 100
#: Per 50 ms.
AT_ONCE = 25


def wait_for_progress(folder: Path, one: Script) -> None:
    """Wait until an instance has completed more work."""

    def done() -> int:
        return sum(map(len, read_work(folder).values()))

    before = done()
    wait_for(lambda: not one.is_running or done() > before, 60, "the instance makes progress")
    assert one.is_running, one.errors


@pytest.mark.extended
@pytest.mark.parametrize(
    "ending",
    [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)],
    ids=["closed", "killed"],
)
@pytest.mark.parametrize(
    ("kind", "tasks"),
    [
        ("coroutines", 2_000),
        pytest.param("coroutines", 10_000, marks=pytest.mark.slow),
        pytest.param("threads", 10_000, marks=pytest.mark.slow),
    ],
)
def test_a_rolling_restart(
    kafka: EmbeddedKafka, tmp_path: Path, kind: str, tasks: int, ending: signal.Signals
) -> None:
    """Goal: all ids are processed; the intervals of one key never overlap; and repeated work is in
    order within its key, and was not committed before.

    Method: three processes are ended and restarted one after the other, while tasks arrive.
    """
    running = ParallelInstances(
        kafka,
        tmp_path,
        kind,
        partitions=PARTITIONS,
        keys=KEYS,
        alone=True,
        most_ms=20,
        properties={"partition_concurrency": 10, "commit_interval_ms": 200},
    )
    records = running.records
    records.write(KEYS)
    with ExitStack() as stack, records.watch_commits(running.name) as snapshots:
        instances = {name: stack.enter_context(running.start(name)) for name in NAMES}
        with records.continuous_input(AT_ONCE, tasks):
            for name, instance in instances.items():
                wait_for_progress(tmp_path / name, instance)
                instance.signal(ending)
                code = instance.wait_ended(30)
                assert code == (0 if ending is signal.SIGTERM else -ending), instance.errors
                instances[name] = stack.enter_context(running.start(name))
            for name, instance in instances.items():
                wait_for_progress(tmp_path / name, instance)
        wait_for(lambda: running.left == 0, 90, lambda: f"{running.left} are left")
        for instance in instances.values():
            instance.signal(signal.SIGTERM)
            assert instance.wait_ended(30) == 0, instance.errors
    assert sum(records.written.values()) >= tasks
    running.check(snapshots)
