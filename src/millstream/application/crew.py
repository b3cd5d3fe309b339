"""The stream threads of one application instance: which there are, and how they come and go."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from millstream.clock import Clock
from millstream.config import StreamsConfig
from millstream.errors import ThreadUnavailableError
from millstream.runtime.backoff import Backoff
from millstream.runtime.build_thread import memory_share
from millstream.runtime.client_states import ClientStates
from millstream.runtime.control import (
    AskForShutdown,
    ChangeProperties,
    Close,
    Command,
    MemoryShare,
    Pause,
    ResizeMemory,
    Resume,
)
from millstream.runtime.states import ThreadState
from millstream.spark.code.shipping import ship
from millstream.spark.engine import SparkEngine
from millstream.spark.sessions.session import require_slots
from millstream.spark.worker.thread_main import StreamThreadMain
from millstream.spark.worker.worker_logging import short_name

logger = logging.getLogger("millstream")

#: The pauses before a thread is replaced: a record that fails each time must not keep a cluster
#: busy. After running for `_REPLACE_CALM_MS` the next pause is a first one again.
_REPLACE_FIRST_MS = 250
_REPLACE_MOST_MS = 30_000
_REPLACE_CALM_MS = 60_000

#: Where a thread works or is about to, as Kafka Streams sees it.
_ALIVE = frozenset(ThreadState) - {
    ThreadState.CREATED,
    ThreadState.PENDING_SHUTDOWN,
    ThreadState.DEAD,
}


class Crew:
    """The threads of an instance by name: their indexes, and what all of them have to know.

    An index is taken from the moment where its thread is submitted until everything that the thread
    told has been heard. Usable from several threads.

    Args:
        config: settings.
        states: told of threads that are submitted.
        main_of: makes the code of the thread of an index.
        clock: for pauses.
    """

    def __init__(
        self,
        config: StreamsConfig,
        states: ClientStates,
        main_of: Callable[[int], StreamThreadMain],
        clock: Clock,
    ) -> None:
        self.engine: SparkEngine | None = None
        self.paused = False
        #: Why the whole application is to shut down; None while it is not.
        self.shutdown_why: str | None = None
        #: Of a subscription, once they have changed: those not left at their defaults.
        self.properties: Mapping[str, Any] | None = None
        self._config = config
        self._states = states
        self._main_of = main_of
        self._clock = clock
        self._changed = threading.Condition(threading.RLock())
        self._indexes: dict[str, int] = {}
        self._leaving: set[str] = set()
        self._on_trial: set[str] = set()
        self._backoffs: dict[str, Backoff] = {}
        self._payloads: dict[int, bytes] = {}
        self._is_closed = False

    # --- coming ----------------------------------------------------------------------------------

    def pack(self) -> None:
        """Make what the first threads are sent, and see whether it can be.

        Raises:
            NotPicklableError: the topology holds something that cannot be shipped.
        """
        self._payloads = {
            index: self._payload(index) for index in range(1, self._config.least_stream_threads + 1)
        }

    def start(self) -> None:
        """Start the first threads."""
        # All are announced before one of them can report anything: a listener that changes threads
        # waits for the end of this start.
        for index in self._payloads:
            self._announce(index, "submitted to Spark")
        for index, payload in self._payloads.items():
            self._submit(index, payload)
        self._payloads = {}

    def begin_to_add(self, register_ms: int | None = None) -> str:
        """Start one more thread, under the lowest index that is free; its name.

        Args:
            register_ms: how long it may wait for a slot; by default as long as any thread.

        Raises:
            NotEnoughSlotsError: the local session has no slot for it.
            NotPicklableError: the topology cannot be shipped any more.
            IllegalStateError: the application closes.
        """
        engine = self.engine
        assert engine is not None
        with self._changed:
            taken = set(self._indexes.values())
            index = next(number for number in range(1, len(taken) + 2) if number not in taken)
            require_slots(engine.session, len(engine.threads) + 1)
            payload, name = self._payload(index), self._name(index)
            self._indexes[name] = index
            self._on_trial.add(name)
        self._start(index, payload, anew=True, register_ms=register_ms)
        with self._changed:
            self._share_memory()
            logger.info("%s is added: %d threads now", short_name(name), self.live)
        return name

    def replace(self, name: str) -> bool:
        """Start another thread in the place of one that has ended, after a pause; whether it was
        started: False if it has been removed meanwhile."""
        backoff = self._backoffs.get(name)
        if backoff is None:
            backoff = self._backoffs[name] = Backoff(
                self._clock,
                first_ms=_REPLACE_FIRST_MS,
                most_ms=_REPLACE_MOST_MS,
                calm_ms=_REPLACE_CALM_MS,
            )
        pause_ms = backoff.next_pause_ms()
        logger.info("%s is replaced in %d ms", short_name(name), pause_ms)
        index = self._indexes[name]
        return self._start(index, self._payload(index), pause_ms)

    def greet(self, name: str) -> None:
        """A thread has registered: tell it what the others know, before it does anything."""
        with self._changed:
            if self.paused:
                self._send(name, Pause())
            if (share := self._memory_share) != memory_share(self._config):
                self._send(name, ResizeMemory(share))
            if self.properties is not None:
                self._send(name, ChangeProperties(self.properties))
            if self.shutdown_why is not None:
                self._send(name, AskForShutdown(self.shutdown_why))

    def has_proven(self, name: str) -> None:
        """A thread runs: it is one of the crew from now on, whatever becomes of it."""
        with self._changed:
            self._on_trial.discard(name)

    # --- going -----------------------------------------------------------------------------------

    def begin_to_remove(self, which: str | None = None) -> str | None:
        """Ask a thread to close, leave the group and not come back; its name.

        Args:
            which: its name. Follows Kafka Streams: by default the first of those that are alive.
        """
        engine = self.engine
        assert engine is not None
        # Never asked under the lock: whoever is told of a state may come here.
        known = self._states.threads()
        with self._changed:
            staying = [name for name in self._indexes if name not in self._leaving]
            if which is not None:
                staying = [name for name in staying if name == which]
            if not staying:
                return None
            alive = [name for name in staying if name in known and known[name][0] in _ALIVE]
            name = (alive or staying)[0]
            self._leaving.add(name)
            engine.ask_to_close(name, Close(for_good=True))
            self._share_memory()
            logger.info("%s is removed: %d threads now", short_name(name), self.live)
            return name

    def await_removed(self, name: str, timeout_s: float | None) -> bool:
        """Wait until nothing of a thread that is to go is left, or the application has closed;
        whether that came in time."""
        assert self.engine is not None
        if self.engine.is_telling:
            # What it told is heard on this very thread, later.
            return self.engine.await_end(name, timeout_s)
        with self._changed:
            return self._changed.wait_for(
                lambda: self._is_closed or name not in self._leaving, timeout_s
            )

    def closed(self) -> None:
        """The engine is closed: no thread is left, and what one would still report is not heard."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def expect_end(self, name: str, within_ms: int) -> None:
        """A thread has failed and closes: kill it if it has not ended by then.

        It waits to hear what follows from its failure before it leaves the group.
        """
        if self.engine is not None:
            self.engine.expect_end(name, within_ms)
            if self.shutdown_why is None:
                self._send(name, Close())

    def ended(self, name: str) -> None:
        """A thread has ended, and no other one comes in its place."""
        with self._changed:
            self._indexes.pop(name, None)
            self._backoffs.pop(name, None)
            self._leaving.discard(name)
            self._on_trial.discard(name)
            self._share_memory()
            self._changed.notify_all()

    def is_leaving(self, name: str) -> bool:
        """Whether a thread is to go."""
        with self._changed:
            return name in self._leaving

    def is_on_trial(self, name: str) -> bool:
        """Whether it is a thread that was added and has never run."""
        with self._changed:
            return name in self._on_trial

    # --- all of them -----------------------------------------------------------------------------

    @property
    def leaving(self) -> frozenset[str]:
        """The threads that are to go."""
        with self._changed:
            return frozenset(self._leaving)

    @property
    def live(self) -> int:
        """How many threads there are, those left out that are to go."""
        with self._changed:
            return len(self._indexes.keys() - self._leaving)

    def pause(self, paused: bool) -> None:
        """Let all threads pause or go on, those included that come later (KIP-834)."""
        with self._changed:
            self.paused = paused
            self._tell_all(Pause() if paused else Resume())

    def change_properties(self, given: Mapping[str, Any]) -> None:
        """Let all threads of a subscription work by these, those included that come later."""
        with self._changed:
            self.properties = given
            self._tell_all(ChangeProperties(given))

    def ask_for_shutdown(self, why: str) -> None:
        """Let the threads tell the group that all of the application is to shut down."""
        with self._changed:
            self.shutdown_why = self.shutdown_why or why
            self._tell_all(AskForShutdown(self.shutdown_why))

    def _share_memory(self) -> None:
        # Follows KIP-663: what all threads may use stays the same.
        self._tell_all(ResizeMemory(self._memory_share))

    @property
    def _memory_share(self) -> MemoryShare:
        return memory_share(self._config, self.live)

    def _tell_all(self, command: Command) -> None:
        for name in self._indexes:
            self._send(name, command)

    def _send(self, name: str, command: Command) -> None:
        if self.engine is None:
            return
        try:
            self.engine.send(name, command)
        except ThreadUnavailableError:
            logger.debug("%s is told when it registers", name)

    def _payload(self, index: int) -> bytes:
        return ship(self._main_of(index), f"the topology of {self._config.application_id}")

    def _name(self, index: int) -> str:
        return self._main_of(index).thread_name

    def _start(
        self,
        index: int,
        payload: bytes,
        pause_ms: int = 0,
        *,
        anew: bool = False,
        register_ms: int | None = None,
    ) -> bool:
        self._announce(index, f"submitted to Spark{f' in {pause_ms} ms' if pause_ms else ''}")
        return self._submit(index, payload, pause_ms, anew=anew, register_ms=register_ms)

    def _announce(self, index: int, why: str) -> None:
        name = self._name(index)
        with self._changed:
            self._indexes[name] = index
        # Not under the lock: whoever is told of a state may come here.
        self._states.thread_is(name, ThreadState.CREATED, why)

    def _submit(
        self,
        index: int,
        payload: bytes,
        pause_ms: int = 0,
        *,
        anew: bool = False,
        register_ms: int | None = None,
    ) -> bool:
        assert self.engine is not None
        name = self._name(index)
        try:
            with self._changed:
                is_removed = name in self._leaving
                if not is_removed:
                    self.engine.start_thread(
                        name, index, payload, pause_ms=pause_ms, anew=anew, register_ms=register_ms
                    )
        except Exception:
            self._states.thread_is(name, ThreadState.DEAD, "could not be submitted")
            self.ended(name)
            raise
        if is_removed:
            # While it was packed: the engine had no such thread that could be closed.
            self._states.thread_is(name, ThreadState.DEAD, "removed before it was submitted")
            self.ended(name)
        return not is_removed
