"""What a record costs one stream thread when there is more of everything, what memory that takes,
how long the first record takes, and what no records cost.

Lines are measured one after the other, those first that need no broker; each can be chosen alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import growing_partitions
import growing_tasks
from broker import Cluster, cluster
from growing import Line, show
from growing_memory import Memory
from growing_partitions import Partitions
from growing_tasks import Growing
from growing_wait import Waiting

ROUNDS = 5
#: Of what takes a broker.
ROUNDS_ON_BROKER = 3
ALONE = ("depth", "keys", "tasks", "task-memory", "entry-memory")
ON_BROKER = ("partitions", "start", "idle")
LINES = (*ALONE, *ON_BROKER)
#: What `--smoke` takes for sizes.
_SMOKE_KEYS, _SMOKE_TASKS, _SMOKE_PARTITIONS = (1_000, 10_000), (1, 5), (2,)


class Scaling:
    """The lines that are chosen."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._folder = folder
        usual = growing_tasks.SMOKE_RECORDS if options.smoke else growing_tasks.RECORDS
        self._records: int = options.records or usual
        self._keys = self._sizes(options.key_counts, _SMOKE_KEYS, growing_tasks.KEYS)
        self._tasks = self._sizes(options.counts, _SMOKE_TASKS, growing_tasks.TASKS)
        self._partitions = self._sizes(options.counts, _SMOKE_PARTITIONS, growing_partitions.SIZES)
        self._lines: dict[str, Line] = {}

    def run(self) -> dict[str, Any]:
        """Measures all of them; what is to be saved."""
        print(
            f"scaling: one thread; {self._records:,} records a round without a broker", flush=True
        )
        self._measure(self._alone())
        if any(name in ON_BROKER for name in self._options.lines):
            with cluster(self._options.bootstrap_servers) as on:
                self._measure(self._on_broker(on))
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

    def _alone(self) -> dict[str, Callable[[], Line]]:
        rounds = self._options.rounds or ROUNDS
        memory = Memory(self._folder / "memory", rounds, smoke=self._options.smoke)
        growing = Growing(self._folder, self._records, rounds)
        return {
            "depth": growing.depth,
            "keys": lambda: growing.keys(self._keys),
            "tasks": lambda: growing.tasks(self._tasks),
            "task-memory": memory.tasks,
            "entry-memory": memory.entries,
        }

    def _on_broker(self, on: Cluster) -> dict[str, Callable[[], Line]]:
        rounds = self._options.rounds or ROUNDS_ON_BROKER
        programs = self._options.beside
        waiting = Waiting(self._options, on, self._folder, rounds=rounds, programs=programs)
        partitions = Partitions(
            self._options,
            on,
            self._folder,
            rounds=rounds,
            programs=programs,
            sizes=self._partitions,
        )
        return {"partitions": partitions.line, "start": waiting.start, "idle": waiting.idle}


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure the lines that are chosen; what is to be saved."""
    return Scaling(options, folder).run()
