"""The stream threads of one application instance."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from millstream.clock import Clock
from millstream.config.streams_config import StreamsConfig
from millstream.errors import ThreadUnavailableError
from millstream.log_format import short_name
from millstream.runtime.build_thread import memory_share
from millstream.runtime.retry import Backoff
from millstream.runtime.states.client_states import ClientStateTracker
from millstream.runtime.states.thread_states import ThreadState
from millstream.runtime.thread_control import (
    ChangeProperties,
    Close,
    Command,
    MemoryShare,
    Pause,
    RequestShutdown,
    ResizeMemory,
    Resume,
)
from millstream.spark.code.shipping import ship
from millstream.spark.engine import SparkEngine
from millstream.spark.sessions.session import require_slots
from millstream.spark.worker.thread_main import StreamThreadMain

logger = logging.getLogger("millstream")

#: The backoff before a thread is replaced, because a record that always fails must not keep a
#: cluster busy. A thread that runs for `_REPLACE_RESET_AFTER_MS` resets the backoff.
_REPLACE_INITIAL_MS = 250
_REPLACE_MAX_MS = 30_000
_REPLACE_RESET_AFTER_MS = 60_000

#: The states in which a thread counts as alive, as in Kafka Streams.
_ALIVE = frozenset(ThreadState) - {
    ThreadState.CREATED,
    ThreadState.PENDING_SHUTDOWN,
    ThreadState.DEAD,
}


class StreamThreads:
    """The threads of an instance, their indexes, and the commands for all of them.

    An index is in use from the submission of its thread until all reports of the thread have been
    handled. Thread-safe.
    """

    def __init__(
        self,
        config: StreamsConfig,
        states: ClientStateTracker,
        main_of: Callable[[int], StreamThreadMain],
        clock: Clock,
    ) -> None:
        self.engine: SparkEngine | None = None
        self.paused = False
        #: The reason for a requested shutdown of the application, or None.
        self.shutdown_reason: str | None = None
        #: The changed properties of a subscription, without those that have their default values.
        self.properties: Mapping[str, Any] | None = None
        self._config = config
        self._states = states
        self._main_of = main_of
        self._clock = clock
        self._changed = threading.Condition(threading.RLock())
        self._indexes: dict[str, int] = {}
        self._leaving: set[str] = set()
        self._unconfirmed: set[str] = set()
        self._backoffs: dict[str, Backoff] = {}
        self._payloads: dict[int, bytes] = {}
        self._is_closed = False

    # --- starting ---------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Pickle the first threads, so that errors are raised before any thread starts.

        Raises:
            NotPicklableError: the topology cannot be pickled.
        """
        self._payloads = {
            index: self._payload(index) for index in range(1, self._config.least_stream_threads + 1)
        }

    def start(self) -> None:
        # All threads are announced before any of them can report, because a listener that adds or
        # removes threads blocks until the start is complete.
        for index in self._payloads:
            self._announce(index, "submitted to Spark")
        for index, payload in self._payloads.items():
            self._submit(index, payload)
        self._payloads = {}

    def add(self, register_ms: int | None = None) -> str:
        """Submit one more thread under the lowest free index, and return its name.

        `register_ms` is the timeout for a slot. The default is that of the first threads.

        Raises:
            NotEnoughSlotsError: the local session has no slot for the thread.
            NotPicklableError: the topology can no longer be pickled.
            IllegalStateError: the application is closing.
        """
        engine = self.engine
        assert engine is not None
        with self._changed:
            taken = set(self._indexes.values())
            index = next(number for number in range(1, len(taken) + 2) if number not in taken)
            require_slots(engine.session, len(engine.threads) + 1)
            payload, name = self._payload(index), self._name(index)
            self._indexes[name] = index
            self._unconfirmed.add(name)
        self._announce(index, "submitted to Spark")
        self._submit(index, payload, ignore_previous=True, register_ms=register_ms)
        with self._changed:
            self._resize_memory()
            logger.info("added %s: %d threads now", short_name(name), self.live)
        return name

    def replace(self, name: str) -> bool:
        """Start a replacement for an ended thread after a backoff.

        Return False if the thread was removed in the meantime.
        """
        backoff = self._backoffs.get(name)
        if backoff is None:
            backoff = self._backoffs[name] = Backoff(
                self._clock,
                initial_ms=_REPLACE_INITIAL_MS,
                max_ms=_REPLACE_MAX_MS,
                reset_after_ms=_REPLACE_RESET_AFTER_MS,
            )
        pause_ms = backoff.next_pause_ms()
        logger.info("replacing %s in %d ms", short_name(name), pause_ms)
        index = self._indexes[name]
        payload = self._payload(index)
        self._announce(index, f"submitted to Spark in {pause_ms} ms")
        return self._submit(index, payload, pause_ms)

    def send_current_commands(self, name: str) -> None:
        """Send a newly registered thread the commands that are in effect for all threads."""
        with self._changed:
            if self.paused:
                self._send(name, Pause())
            if (share := self._memory_share) != memory_share(self._config):
                self._send(name, ResizeMemory(share))
            if self.properties is not None:
                self._send(name, ChangeProperties(self.properties))
            if self.shutdown_reason is not None:
                self._send(name, RequestShutdown(self.shutdown_reason))

    def confirm(self, name: str) -> None:
        """Mark an added thread as running: its later errors go to the failure policy."""
        with self._changed:
            self._unconfirmed.discard(name)

    # --- closing ----------------------------------------------------------------------------------

    def begin_removal(self, which: str | None = None) -> str | None:
        """Start closing a thread permanently, and return its name.

        Returns None if there is no thread to remove.

        The thread leaves the group. The default is the first live thread, as in Kafka Streams.
        """
        engine = self.engine
        assert engine is not None
        # Not under the lock: a state listener may call this object.
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
            engine.request_close(name, Close(for_good=True))
            self._resize_memory()
            logger.info("removing %s: %d threads now", short_name(name), self.live)
            return name

    def await_removal(self, name: str, timeout_s: float | None) -> bool:
        """Wait until a thread is removed or the application has closed.

        Return whether this happened within the timeout.
        """
        assert self.engine is not None
        if self.engine.is_event_thread:
            # The current thread delivers the event, so waiting for it here would block forever.
            return self.engine.await_end(name, timeout_s)
        with self._changed:
            return self._changed.wait_for(
                lambda: self._is_closed or name not in self._leaving, timeout_s
            )

    def mark_closed(self) -> None:
        """Handle the end of the engine: no thread is left, and later reports are ignored."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def close_failed(self, name: str, within_ms: int) -> None:
        """Close a failed thread, and kill it if it has not ended within a timeout.

        The thread waits for a command before it leaves the group: `Close`, or the shutdown request
        that it has already received.
        """
        if self.engine is not None:
            self.engine.kill_after(name, within_ms)
            if self.shutdown_reason is None:
                self._send(name, Close())

    def remove(self, name: str) -> None:
        """Remove a thread that has ended and is not replaced."""
        with self._changed:
            self._indexes.pop(name, None)
            self._backoffs.pop(name, None)
            self._leaving.discard(name)
            self._unconfirmed.discard(name)
            self._resize_memory()
            self._changed.notify_all()

    def is_unconfirmed(self, name: str) -> bool:
        with self._changed:
            return name in self._unconfirmed

    # --- all threads ------------------------------------------------------------------------------

    @property
    def leaving(self) -> frozenset[str]:
        with self._changed:
            return frozenset(self._leaving)

    @property
    def live(self) -> int:
        """The number of threads, excluding those that are being removed."""
        with self._changed:
            return len(self._indexes.keys() - self._leaving)

    def pause(self, paused: bool) -> None:
        """Pause or resume all current and future threads (KIP-834)."""
        with self._changed:
            self.paused = paused
            self._send_to_all(Pause() if paused else Resume())

    def change_properties(self, given: Mapping[str, Any]) -> None:
        """Apply subscription properties in all current and future threads."""
        with self._changed:
            self.properties = given
            self._send_to_all(ChangeProperties(given))

    def request_shutdown(self, why: str) -> None:
        """Make the threads request a shutdown of all instances through the group."""
        with self._changed:
            self.shutdown_reason = self.shutdown_reason or why
            self._send_to_all(RequestShutdown(self.shutdown_reason))

    def _resize_memory(self) -> None:
        # Follows KIP-663: the total memory of all threads stays the same.
        self._send_to_all(ResizeMemory(self._memory_share))

    @property
    def _memory_share(self) -> MemoryShare:
        return memory_share(self._config, self.live)

    def _send_to_all(self, command: Command) -> None:
        for name in self._indexes:
            self._send(name, command)

    def _send(self, name: str, command: Command) -> None:
        if self.engine is None:
            return
        try:
            self.engine.send(name, command)
        except ThreadUnavailableError:
            logger.debug("%s gets the command when it registers", name)

    def _payload(self, index: int) -> bytes:
        return ship(self._main_of(index), f"the topology of {self._config.application_id}")

    def _name(self, index: int) -> str:
        return self._main_of(index).thread_name

    def _announce(self, index: int, why: str) -> None:
        name = self._name(index)
        with self._changed:
            self._indexes[name] = index
        # Not under the lock: a state listener may call this object.
        self._states.set_thread_state(name, ThreadState.CREATED, why)

    def _submit(
        self,
        index: int,
        payload: bytes,
        pause_ms: int = 0,
        *,
        ignore_previous: bool = False,
        register_ms: int | None = None,
    ) -> bool:
        assert self.engine is not None
        name = self._name(index)
        try:
            with self._changed:
                is_removed = name in self._leaving
                if not is_removed:
                    self.engine.start_thread(
                        name,
                        index,
                        payload,
                        pause_ms=pause_ms,
                        ignore_previous=ignore_previous,
                        register_ms=register_ms,
                    )
        except Exception:
            self._states.set_thread_state(name, ThreadState.DEAD, "could not be submitted")
            self.remove(name)
            raise
        if is_removed:
            # The thread was removed before it was submitted, so the engine has nothing to close.
            self._states.set_thread_state(name, ThreadState.DEAD, "removed before it was submitted")
            self.remove(name)
        return not is_removed


class ThreadChanges:
    """Adds and removes threads while the application is live. Thread-safe.

    Args:
        lock: held while the application starts or closes.
    """

    def __init__(
        self, states: ClientStateTracker, stream_threads: StreamThreads, lock: threading.RLock
    ) -> None:
        self._states = states
        self._stream_threads = stream_threads
        self._lock = lock

    def add(self) -> str | None:
        """Add a thread, wait until it runs, and return its name.

        Return None if threads cannot be added now.

        Raises:
            SparkError: Spark has no slot for the thread, or cannot run it.
            NotPicklableError: the topology can no longer be pickled.
        """
        if self._stream_threads.shutdown_reason is not None:
            logger.warning("no thread was added: the application is about to shut down")
            return None
        with self._locked_engine() as engine:
            if engine is None:
                return None
            name = self._stream_threads.add()
        failure = engine.await_start(name)
        if failure is not None:
            raise failure
        return name if self._states.is_live else None

    def remove(self, timeout_s: float | None) -> str | None:
        """Close a thread permanently and return its name; None if that is impossible now.

        Raises:
            TimeoutError: the thread did not close in time. It continues to close.
        """
        with self._locked_engine() as engine:
            if engine is None:
                return None
            name = self._stream_threads.begin_removal()
        if name is None:
            logger.warning("there is no thread to remove")
        elif not self._stream_threads.await_removal(name, timeout_s):
            raise TimeoutError(
                f"{name} did not close within {timeout_s} s. It continues to close. Other threads "
                "take over its tasks and reprocess records that it has not committed."
            )
        return name

    @contextmanager
    def engine_if_idle(self) -> Iterator[SparkEngine | None]:
        """Yield the engine with the lock held, or None if threads cannot change now.

        Never blocks.
        """
        if self._stream_threads.shutdown_reason is not None or not self._lock.acquire(
            blocking=False
        ):
            yield None
            return
        try:
            yield self._stream_threads.engine if self._states.is_live else None
        finally:
            self._lock.release()

    @contextmanager
    def _locked_engine(self) -> Iterator[SparkEngine | None]:
        """Yield the engine with the lock held, or None if threads cannot change now."""
        # The state is also checked before locking: `close` holds the lock while it waits for
        # listeners, which may call this method.
        if self._states.is_live:
            self._lock.acquire()
            try:
                if self._states.is_live and self._stream_threads.engine is not None:
                    yield self._stream_threads.engine
                    return
            finally:
                self._lock.release()
        logger.warning(
            "threads can only be added or removed while the application runs, but its state is %s",
            self._states.state.name,
        )
        yield None
