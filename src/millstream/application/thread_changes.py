"""Stream threads that are added to a running application and removed from it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from millstream.application.crew import Crew
from millstream.runtime.client_states import ClientStates
from millstream.spark.engine import SparkEngine

logger = logging.getLogger("millstream")


class Gate(Protocol):
    """A lock that its holder may take again."""

    def acquire(self, blocking: bool = True) -> bool: ...
    def release(self) -> None: ...


class ThreadChanges:
    """Adds threads and removes them, while the application lives. Usable from several threads.

    Args:
        states: whether it lives.
        crew: the threads.
        gate: held while the application is started or closed.
    """

    def __init__(self, states: ClientStates, crew: Crew, gate: Gate) -> None:
        self._states = states
        self._crew = crew
        self._gate = gate

    def add(self) -> str | None:
        """Start one more thread and wait until it runs; its name, or None if it is no time for it.

        Raises:
            SparkError: Spark has no place for it, or cannot run it.
            NotPicklableError: the topology cannot be shipped any more.
        """
        if self._crew.shutdown_why is not None:
            logger.warning("no thread is added: the application is to shut down")
            return None
        with self._changing() as engine:
            if engine is None:
                return None
            name = self._crew.begin_to_add()
        failure = engine.await_start(name)
        if failure is not None:
            raise failure
        return name if self._states.is_live else None

    def remove(self, timeout_s: float | None) -> str | None:
        """Close a thread for good; its name, or None if there is none, or it is no time for it.

        Raises:
            TimeoutError: it has not closed in time. It goes on closing.
        """
        with self._changing() as engine:
            if engine is None:
                return None
            name = self._crew.begin_to_remove()
        if name is None:
            logger.warning("there is no thread to remove")
        elif not self._crew.await_removed(name, timeout_s):
            raise TimeoutError(
                f"{name} has not closed within {timeout_s} s. It goes on closing: what its tasks "
                "have not committed by then is repeated by the threads that take them over."
            )
        return name

    @contextmanager
    def if_idle(self) -> Iterator[SparkEngine | None]:
        """The engine, while nothing is started or closed; None, at once, if this is no time to
        change threads."""
        if self._crew.shutdown_why is not None or not self._gate.acquire(blocking=False):
            yield None
            return
        try:
            yield self._crew.engine if self._states.is_live else None
        finally:
            self._gate.release()

    @contextmanager
    def _changing(self) -> Iterator[SparkEngine | None]:
        """The engine, while nothing is started or closed; None if this is no time for it."""
        # Looked at before as well: who closes waits for those who are told of it.
        if self._states.is_live:
            self._gate.acquire()
            try:
                if self._states.is_live and self._crew.engine is not None:
                    yield self._crew.engine
                    return
            finally:
                self._gate.release()
        logger.warning("threads are neither added nor removed while %s", self._states.state.name)
        yield None
