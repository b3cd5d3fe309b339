"""The cost of large groups, without a broker or Spark.

Measures the leader's cost of a rebalance with up to 10,000 tasks and 500 threads, the size of the
group's data, and the control connections of up to 1,000 threads.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from millstream.assignment.task_assignor import AssignmentConfig
from millstream.spark.worker.process_setup import infrequent_gc
from parts import connections
from parts.groups import Rebalance, SimulatedGroup

#: Numbers of tasks and stream threads.
_SIZES: Final = ((100, 5), (1_000, 50), (1_000, 500), (10_000, 50), (10_000, 500))
_SMOKE_SIZES: Final = ((100, 5),)
#: In larger groups, decoding the hosts of all members takes minutes.
_MAX_WITH_HOSTS: Final = 1_000, 50
#: The labels of rack-aware strategies.
_TITLES: Final = {"none": "", "min_traffic": "racks", "balance_subtopology": "balance"}


@dataclass(frozen=True)
class _Case:
    """The size of a group, and its assignment strategy."""

    tasks: int
    threads: int
    per_process: int
    standbys: int
    strategy: Literal["none", "min_traffic", "balance_subtopology"] = "none"
    has_hosts: bool = False

    @property
    def title(self) -> str:
        """The first columns of the case's line."""
        extra = "hosts" if self.has_hosts else _TITLES[self.strategy]
        return (
            f"{self.tasks:>7,} {self.threads:>8,} {self.threads // self.per_process:>10,} "
            f"{self.standbys:>9} {extra:>7}"
        )


def _cases(sizes: tuple[tuple[int, int], ...]) -> list[_Case]:
    cases: list[_Case] = []
    for tasks, threads in sizes:
        for per_process in (5, 1):
            cases += [_Case(tasks, threads, per_process, standbys) for standbys in (0, 1)]
        cases.append(_Case(tasks, threads, 5, 1, "min_traffic"))
        cases.append(_Case(tasks, threads, 5, 1, "balance_subtopology"))
        if (tasks, threads) <= _MAX_WITH_HOSTS:
            cases.append(_Case(tasks, threads, 5, 1, has_hosts=True))
    return cases


def _measure(case: _Case) -> tuple[dict[str, list[Rebalance]], dict[str, Any]]:
    config = AssignmentConfig(
        num_standby_replicas=case.standbys, rack_aware_assignment_strategy=case.strategy
    )
    group = SimulatedGroup(case.tasks, config, has_hosts=case.has_hosts)
    done: dict[str, list[Rebalance]] = {}
    group.start(case.threads, per_process=case.per_process)
    done["first"] = _settled(group)
    done["stable"] = _settled(group)
    group.stop(1)
    done["lost"] = _settled(group)
    group.start(1)
    done["added"] = _settled(group)
    group.check(case.tasks)
    last = max(done["stable"], key=lambda each: each.total_bytes)
    sizes = {
        "subscription": max(last.subscription_bytes),
        "assignment": max(last.assignment_bytes),
        "group": last.total_bytes,
    }
    return done, sizes


def _settled(group: SimulatedGroup) -> list[Rebalance]:
    done = group.settle()
    group.catch_up()
    return done


def assignor(cases: list[_Case]) -> dict[str, Any]:
    """Measure the leader's cost of a rebalance, and the size of the group's data."""
    print("assignor: CPU seconds for one rebalance, maximum of each kind\n")
    head = f"{'tasks':>7} {'threads':>8} {'processes':>10} {'standbys':>9} {'':>7} {'first':>7}"
    print(
        f"{head} {'stable':>7} {'a lost':>7} {'a new':>7}   {'joined B':>8} {'assigned B':>10} "
        f"{'group KiB':>9}"
    )
    measured: dict[str, Any] = {}
    for case in cases:
        # As in a stream thread, because the leader is a stream thread.
        with infrequent_gc():
            done, sizes = _measure(case)
        took = {what: max(each.took_s for each in rounds) for what, rounds in done.items()}
        seconds = " ".join(f"{took_s:>7.3f}" for took_s in took.values())
        print(
            f"{case.title} {seconds}   {sizes['subscription']:>8,} {sizes['assignment']:>10,} "
            f"{sizes['group'] / 1024:>9,.0f}",
            flush=True,
        )
        measured[" ".join(case.title.split())] = {**took, **sizes}
    return measured


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure all cases and the connections; return the results to save."""
    cases = _cases(_SMOKE_SIZES if options.smoke else _SIZES)
    return {"assignor": assignor(cases), "connections": connections.run(options)}
