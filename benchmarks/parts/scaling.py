"""The cost of a record in one stream thread at increasing sizes, and other costs.

Also measures the memory of tasks and entries, the time until the first record, and the cost of an
idle thread. Lines can be selected individually. They are measured one after the other, starting
with those without a broker.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from growth.lines import Line, show
from growth.memory import MemoryCosts
from growth.partitions import SIZES, PartitionCosts
from growth.startup import StartupAndIdle
from growth.tasks import KEYS, RECORDS, SMOKE_RECORDS, TASKS, TaskCosts
from harness.broker import Cluster, cluster

ROUNDS = 5
#: The number of rounds of lines with a broker.
ROUNDS_ON_BROKER = 3
WITHOUT_BROKER = ("depth", "keys", "tasks", "task-memory", "entry-memory")
WITH_BROKER = ("partitions", "start", "idle")
LINES = (*WITHOUT_BROKER, *WITH_BROKER)
#: The sizes of `--smoke`.
_SMOKE_KEYS, _SMOKE_TASKS, _SMOKE_PARTITIONS = (1_000, 10_000), (1, 5), (2,)


class Scaling:
    """The selected lines."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._folder = folder
        usual = SMOKE_RECORDS if options.smoke else RECORDS
        self._records: int = options.records or usual
        self._keys = self._sizes(options.key_counts, _SMOKE_KEYS, KEYS)
        self._tasks = self._sizes(options.counts, _SMOKE_TASKS, TASKS)
        self._partitions = self._sizes(options.counts, _SMOKE_PARTITIONS, SIZES)
        self._lines: dict[str, Line] = {}

    def run(self) -> dict[str, Any]:
        """Measure all selected lines; return the results to save."""
        print(
            f"scaling: one thread; {self._records:,} records per round without a broker",
            flush=True,
        )
        self._measure(self._without_broker())
        if any(name in WITH_BROKER for name in self._options.lines):
            with cluster(self._options.bootstrap_servers) as broker:
                self._measure(self._with_broker(broker))
        return {"lines": {name: line.to_dict() for name, line in self._lines.items()}}

    def _sizes(
        self, chosen: Sequence[int] | None, smoke: Sequence[int], usual: Sequence[int]
    ) -> Sequence[int]:
        return chosen or (smoke if self._options.smoke else usual)

    def _measure(self, lines: dict[str, Callable[[], Line]]) -> None:
        for name, measure in lines.items():
            if name in self._options.lines:
                self._lines[name] = measure()
                show(name, self._lines[name])

    def _without_broker(self) -> dict[str, Callable[[], Line]]:
        rounds = self._options.rounds or ROUNDS
        memory = MemoryCosts(self._folder / "memory", rounds, smoke=self._options.smoke)
        growing = TaskCosts(self._folder, self._records, rounds)
        return {
            "depth": growing.depth,
            "keys": lambda: growing.keys(self._keys),
            "tasks": lambda: growing.tasks(self._tasks),
            "task-memory": memory.tasks,
            "entry-memory": memory.entries,
        }

    def _with_broker(self, broker: Cluster) -> dict[str, Callable[[], Line]]:
        rounds = self._options.rounds or ROUNDS_ON_BROKER
        programs = self._options.scaling_programs
        waiting = StartupAndIdle(
            self._options, broker, self._folder, rounds=rounds, programs=programs
        )
        partitions = PartitionCosts(
            self._options,
            broker,
            self._folder,
            rounds=rounds,
            programs=programs,
            sizes=self._partitions,
        )
        return {"partitions": partitions.line, "start": waiting.start, "idle": waiting.idle}


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure the selected lines; return the results to save."""
    return Scaling(options, folder).run()
