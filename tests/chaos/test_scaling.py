"""Scaling out and in under load: nothing is lost, and tasks move after their state."""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.machine.scripts import Script
from support.running.instances import COUNTING, Instances, counting, is_running, reported
from support.waiting import wait_for

from millstream.testing import EmbeddedKafka

#: The interval of probing rebalances, at its minimum.
PROBING_MS = 60_000
#: A standby with this lag counts as caught up. The load writes fewer records per second.
ACCEPTABLE_LAG = 3_000

pytestmark = pytest.mark.slow


def owners(scripts: list[Script]) -> dict[str, int]:
    """The instance that runs each stateful task."""
    return {task: number for number, s in enumerate(scripts) for task in counting(s)}


def taken_over(script: Script) -> int:
    """The number of stateful tasks that an instance has taken over."""
    count, before = 0, set[str]()
    for line in script.lines:
        if line.startswith("now "):
            active = {t for t in json.loads(line[4:])["active"] if t in COUNTING}
            count += len(active - before)
            before = active
    return count


def is_balanced(scripts: list[Script]) -> bool:
    """Whether all instances run, and stateful tasks are balanced to within one task."""
    loads = [len(counting(script)) for script in scripts]
    return (
        all(map(is_running, scripts))
        and sum(loads) == len(COUNTING)
        and max(loads) - min(loads) <= 1
    )


def test_scaling_out_and_in_under_load(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: 1 → 2 → 3 → 1 instances without losing or repeating a record. A task moves to a new
    instance when a standby has caught up there, so that it only restores the last records, and each
    task moves at most once."""
    instances = Instances(
        kafka,
        tmp_path,
        acceptable_recovery_lag=ACCEPTABLE_LAG,
        probing_rebalance_interval_ms=PROBING_MS,
        max_warmup_replicas=4,
        caching=False,
    )
    application = instances.application
    application.write(40_000)
    with ExitStack() as running:
        scripts = [running.enter_context(instances.start("first"))]
        wait_for(lambda: counting(scripts[0]) == COUNTING, 120, "the first instance has all tasks")
        wait_for(lambda: instances.lag == 0, 120, "committed")
        with application.continuous_input(pause_s=0.1):
            for name in ("second", "third"):
                before = owners(scripts)
                previous = sum(map(taken_over, scripts))
                scripts.append(running.enter_context(instances.start(name)))
                wait_for(
                    lambda: is_balanced(scripts),
                    3 * PROBING_MS / 1000,
                    f"{name} has its share of tasks",
                )
                after = owners(scripts)
                moved = [task for task in COUNTING if before[task] != after[task]]
                assert moved
                # The target assignment ignores the history, so more tasks may move than the new
                # instance's share, but each task moves directly to its target.
                assert sum(map(taken_over, scripts)) - previous == len(moved)
                for task in moved:
                    number = int(task.partition("_")[2])
                    totals = [
                        t
                        for place, t in reported(scripts[after[task]], "restored")
                        if place == number
                    ]
                    assert totals[-1] <= 2 * ACCEPTABLE_LAG, f"{task} restored {totals}"
            for script in scripts[1:]:
                script.signal(signal.SIGINT)
                assert script.wait_ended(60) == 0
            wait_for(
                lambda: counting(scripts[0]) == COUNTING,
                120,
                "the first instance has all tasks again",
            )
        # Without failures, nothing may be repeated either.
        application.check(120)
        scripts[0].signal(signal.SIGINT)
        assert scripts[0].wait_ended(60) == 0
