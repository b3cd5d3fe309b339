"""Instances come and go under load: nothing is lost, and state goes ahead of the tasks."""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.machine.scripts import Script
from support.running.instances import COUNTING, Instances, counting, is_running, told
from support.waiting import wait_for

from millstream.testing import EmbeddedKafka

#: The shortest that there is.
PROBING_MS = 60_000
#: A copy that is no further behind counts as caught up. The load makes fewer in a second.
ACCEPTABLE_LAG = 3_000

pytestmark = pytest.mark.slow


def owners(scripts: list[Script]) -> dict[str, int]:
    """Which instance counts which task."""
    return {task: number for number, s in enumerate(scripts) for task in counting(s)}


def taken(script: Script) -> int:
    """How often an instance took a task with state over."""
    count, before = 0, set[str]()
    for line in script.lines:
        if line.startswith("now "):
            active = {t for t in json.loads(line[4:])["active"] if t in COUNTING}
            count += len(active - before)
            before = active
    return count


def even(scripts: list[Script]) -> bool:
    """Whether everybody runs, every task is counted once, and nobody has two more than another."""
    loads = [len(counting(script)) for script in scripts]
    return (
        all(map(is_running, scripts))
        and sum(loads) == len(COUNTING)
        and max(loads) - min(loads) <= 1
    )


def test_growing_and_shrinking_under_load(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: 1 → 2 → 3 → 1 instances without losing or repeating a record. A task moves to a new
    instance when a copy has caught up there, so that it restores a short tail, and each task moves
    once at most."""
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
        wait_for(lambda: counting(scripts[0]) == COUNTING, 120, "the first one has all")
        wait_for(lambda: instances.lag == 0, 120, "committed")
        with application.arriving(pause_s=0.1):
            for name in ("second", "third"):
                before = owners(scripts)
                already = sum(map(taken, scripts))
                scripts.append(running.enter_context(instances.start(name)))
                wait_for(lambda: even(scripts), 3 * PROBING_MS / 1000, f"{name} has its share")
                after = owners(scripts)
                moved = [task for task in COUNTING if before[task] != after[task]]
                assert moved
                # The assignor's ideal knows no history, so more may move than the new one's share;
                # but what moves goes straight to where the ideal wants it.
                assert sum(map(taken, scripts)) - already == len(moved)
                for task in moved:
                    number = int(task.partition("_")[2])
                    totals = [
                        t for place, t in told(scripts[after[task]], "restored") if place == number
                    ]
                    assert totals[-1] <= 2 * ACCEPTABLE_LAG, f"{task} restored {totals}"
            for script in scripts[1:]:
                script.signal(signal.SIGINT)
                assert script.wait_ended(60) == 0
            wait_for(lambda: counting(scripts[0]) == COUNTING, 120, "the first one has all again")
        # Nothing fails here: nothing may be repeated either.
        application.check(120)
        scripts[0].signal(signal.SIGINT)
        assert scripts[0].wait_ended(60) == 0
