"""Instances of an application that faults come over: whichever has ended is started again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from support.machine.leftovers import descendants, runs
from support.machine.scripts import Script
from support.meanwhile import meanwhile
from support.running.instances import last_told

_NAMES = ("one", "other")
_LOOK_S = 0.5


class Starts(Protocol):
    """Starts the instances of an application."""

    def state(self, name: str) -> Path:
        """Where an instance has its state."""
        ...

    def started(self, name: str) -> Script:
        """An instance; whoever starts it ends it."""
        ...


class Instance:
    """A driver that is started again whenever it has ended, as a service manager does."""

    def __init__(self, name: str, instances: Starts) -> None:
        self.name = name
        #: How often it was started.
        self.starts = 0
        self._instances = instances
        self._script: Script | None = None
        self._ended: list[Script] = []
        self._orphans: set[int] = set()

    @property
    def script(self) -> Script:
        assert self._script is not None
        return self._script

    @property
    def fails(self) -> Path:
        """When this file appears, the next record fails."""
        return Path(f"{self._instances.state(self.name)}-fails")

    @property
    def slow(self) -> Path:
        """When this file appears, the next record takes as many seconds as it says."""
        return Path(f"{self._instances.state(self.name)}-slow")

    @property
    def is_up(self) -> bool:
        told = last_told(self.script)
        return self.script.is_running and told.get("state") == "RUNNING"

    @property
    def workers(self) -> list[int]:
        """The processes of its stream threads."""
        return [pid for pid in last_told(self.script).get("pids", []) if runs(pid)]

    @property
    def processes(self) -> list[int]:
        """All that belong to it."""
        found = [self.script.pid, *descendants(self.script.pid)]
        # Should the driver end before them, nothing else tells whose they are.
        self._orphans.update(found)
        return found

    def tend(self) -> None:
        """Start it, unless it runs."""
        if self._script is None or not self._script.is_running:
            if self._script is not None:
                self._ended.append(self._script)
            self.starts += 1
            self._script = self._instances.started(self.name)

    def end(self) -> int:
        """Close it in an orderly way; its exit code."""
        self.script.signal(signal.SIGINT)
        return self.script.wait_ended(60)

    def kill(self) -> None:
        """End whatever is left of it."""
        if self._script is not None:
            send(signal.SIGKILL, *self.processes, *filter(runs, self._orphans))
            for script in [*self._ended, self._script]:
                script.__exit__()


def send(number: signal.Signals, *pids: int) -> None:
    """Send a signal to processes, if they are there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Tended:
    """All instances of an application.

    Args:
        instances: starts them.
        chance: decides which of them a fault comes over.
    """

    def __init__(self, instances: Starts, chance: random.Random) -> None:
        self.all: Sequence[Instance] = [Instance(name, instances) for name in _NAMES]
        self._chance = chance
        self._turn = threading.Lock()
        self._is_over = False

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """They are started, and started again, until the block is left or they are ended."""
        try:
            self._tend()
            with meanwhile(self._tend, _LOOK_S):
                yield
        finally:
            for each in self.all:
                each.kill()

    def _tend(self) -> None:
        with self._turn:
            if not self._is_over:
                for each in self.all:
                    each.tend()

    def end(self) -> None:
        """Close all in an orderly way; nobody is started again."""
        with self._turn:
            self._is_over = True
        for each in self.all:
            assert each.end() == 0, each.script.errors

    @property
    def are_up(self) -> bool:
        """Whether all of them run."""
        return all(each.is_up for each in self.all)

    @property
    def starts(self) -> int:
        """How often one was started, the first times included."""
        return sum(each.starts for each in self.all)

    def last_words(self, length: int) -> dict[str, str]:
        """So much of what each has written to stderr last."""
        return {each.name: each.script.errors[-length:] for each in self.all}

    def any(self) -> Instance:
        """One of them."""
        return self._chance.choice(self.all)

    def worker(self) -> list[int]:
        """One process of one of them that has stream threads, if there is one."""
        return [self._chance.choice(workers)] if (workers := sorted(self.any().workers)) else []

    def change_threads(self, how: str) -> None:
        """Tell one of them to `add` or `remove` a thread."""
        # One that has ended does not hear it.
        with contextlib.suppress(BrokenPipeError):
            self.any().script.say(how)
