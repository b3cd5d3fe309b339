"""The supervised instances of an application: ended instances are restarted."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from support.background import background
from support.machine.leftovers import descendants, runs
from support.machine.scripts import Script
from support.running.instances import last_report

_NAMES = ("one", "other")
_CHECK_S = 0.5


class InstanceStarter(Protocol):
    """Starts the instances of an application."""

    def state(self, name: str) -> Path:
        """The state folder of an instance."""
        ...

    def start(self, name: str) -> Script:
        """Start an instance that the caller ends."""
        ...


class Instance:
    """A driver that is restarted whenever it ends, as by a service manager."""

    def __init__(self, name: str, instances: InstanceStarter) -> None:
        self.name = name
        #: The number of starts.
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
        """When this file appears, the next record takes the number of seconds in it."""
        return Path(f"{self._instances.state(self.name)}-slow")

    @property
    def is_up(self) -> bool:
        report = last_report(self.script)
        return self.script.is_running and report.get("state") == "RUNNING"

    @property
    def workers(self) -> list[int]:
        """The processes of the stream threads."""
        return [pid for pid in last_report(self.script).get("pids", []) if runs(pid)]

    @property
    def processes(self) -> list[int]:
        """All processes of the instance."""
        found = [self.script.pid, *descendants(self.script.pid)]
        # If the driver ends first, its children can no longer be found.
        self._orphans.update(found)
        return found

    def restart_if_ended(self) -> None:
        """Start the instance unless it is running."""
        if self._script is None or not self._script.is_running:
            if self._script is not None:
                self._ended.append(self._script)
            self.starts += 1
            self._script = self._instances.start(self.name)

    def end(self) -> int:
        """Close the instance cleanly and return its exit code."""
        self.script.signal(signal.SIGINT)
        return self.script.wait_ended(60)

    def kill(self) -> None:
        """Kill the remaining processes."""
        if self._script is not None:
            send(signal.SIGKILL, *self.processes, *filter(runs, self._orphans))
            for script in [*self._ended, self._script]:
                script.__exit__()


def send(number: signal.Signals, *pids: int) -> None:
    """Send a signal to the processes that exist."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class SupervisedInstances:
    """All instances of an application.

    Args:
        instances: starts them.
        rng: chooses the targets of faults.
    """

    def __init__(self, instances: InstanceStarter, rng: random.Random) -> None:
        self.all: Sequence[Instance] = [Instance(name, instances) for name in _NAMES]
        self._rng = rng
        self._lock = threading.Lock()
        self._is_over = False

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start the instances and restart ended ones, until the block ends or `end` is called."""
        try:
            self._restart_ended()
            with background(self._restart_ended, _CHECK_S):
                yield
        finally:
            for each in self.all:
                each.kill()

    def _restart_ended(self) -> None:
        with self._lock:
            if not self._is_over:
                for each in self.all:
                    each.restart_if_ended()

    def end(self) -> None:
        """Close all instances cleanly and stop restarting them."""
        with self._lock:
            self._is_over = True
        for each in self.all:
            assert each.end() == 0, each.script.errors

    @property
    def are_up(self) -> bool:
        """Whether all instances are running."""
        return all(each.is_up for each in self.all)

    @property
    def starts(self) -> int:
        """The number of starts of all instances, including the first ones."""
        return sum(each.starts for each in self.all)

    def last_errors(self, length: int) -> dict[str, str]:
        """The end of the stderr output of each instance."""
        return {each.name: each.script.errors[-length:] for each in self.all}

    def any(self) -> Instance:
        """A random instance."""
        return self._rng.choice(self.all)

    def worker(self) -> list[int]:
        """A random worker process of a random instance, if there is one."""
        return [self._rng.choice(workers)] if (workers := sorted(self.any().workers)) else []

    def change_threads(self, how: str) -> None:
        """Send the command `add` or `remove` a thread to a random instance."""
        # The instance may have ended.
        with contextlib.suppress(BrokenPipeError):
            self.any().script.write_line(how)
