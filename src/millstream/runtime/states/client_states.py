"""The state of an application instance, derived from its stream threads."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from millstream.clock import Clock
from millstream.runtime.states.thread_states import (
    CLIENT_TRANSITIONS,
    ClientState,
    OwnedTask,
    StateMachine,
    ThreadState,
)

logger = logging.getLogger(__name__)

StateListener = Callable[[ClientState, ClientState], Any]
#: Called with the new state, the old state, and the reason.
TransitionRecorder = Callable[[ClientState, ClientState, str], None]

_FINAL = frozenset({ClientState.NOT_RUNNING, ClientState.ERROR})
_LIVE = frozenset({ClientState.REBALANCING, ClientState.RUNNING})


class ClientStateTracker:
    """Derives the state of an instance from its threads, as in Kafka Streams.

    A live instance (`KafkaStreams.State`) is RUNNING if all threads that are not closing are
    RUNNING; otherwise, it is REBALANCING. Thread-safe.

    The thread that changes the state calls the listener, one call at a time and in the order of the
    changes, without holding the lock: other threads can read the state during the call.
    """

    def __init__(self, application_id: str, clock: Clock) -> None:
        self._changed = threading.Condition()
        self._threads: dict[str, ThreadState] = {}
        self._tasks: dict[str, dict[str, OwnedTask]] = {}
        self._listener: StateListener | None = None
        self._undelivered: deque[tuple[ClientState, ClientState]] = deque()
        self._listener_lock = threading.RLock()
        #: The thread that is calling the listener.
        self._listener_thread: int | None = None
        self._recorder: TransitionRecorder | None = None
        self._machine = StateMachine(
            f"Application {application_id}",
            ClientState.CREATED,
            CLIENT_TRANSITIONS,
            clock,
            self._on_change,
        )
        self._application_id = application_id

    @property
    def state(self) -> ClientState:
        return self._machine.state

    @property
    def is_final(self) -> bool:
        """Whether the instance has ended; it cannot be restarted."""
        return self.state in _FINAL

    @property
    def is_live(self) -> bool:
        """Whether the instance was started and is not closing."""
        return self.state in _LIVE

    @property
    def history(self) -> list[str]:
        return self._machine.history

    def set_listener(self, listener: StateListener | None) -> None:
        """Call `listener(new, old)` after each change."""
        self._listener = listener

    def set_recorder(self, recorder: TransitionRecorder) -> None:
        """Call `recorder(new, old, why)` at each change, before the listener.

        The recorder must not raise.
        """
        self._recorder = recorder

    def try_transition(self, state: ClientState, why: str) -> bool:
        """Change the state if the transition is allowed; return whether it was allowed."""
        with self._changed:
            if not self._machine.can_transition_to(state):
                return False
            self._machine.transition_to(state, why)
            self._changed.notify_all()
        self._notify_listener()
        return True

    def set_thread_state(self, name: str, state: ThreadState, why: str) -> None:
        with self._changed:
            if state is ThreadState.DEAD:
                self._threads.pop(name, None)
                self._tasks.pop(name, None)
            else:
                self._threads[name] = state
        self._follow_threads(f"{name} is {state.name}: {why}")

    def set_tasks(self, name: str, tasks: dict[str, OwnedTask]) -> None:
        with self._changed:
            self._tasks[name] = tasks

    def threads(self) -> dict[str, tuple[ThreadState, dict[str, OwnedTask]]]:
        """Return the state and the tasks (by id) of each live thread, by thread name."""
        with self._changed:
            return {
                name: (state, dict(self._tasks.get(name, {})))
                for name, state in sorted(self._threads.items())
            }

    def wait_for(self, wanted: frozenset[ClientState], timeout_s: float | None) -> bool:
        """Wait for a wanted or a final state; return whether a wanted one was reached.

        Also waits for pending calls to the listener, unless the listener itself calls this method.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.state in wanted or self.is_final, timeout_s)
            is_reached = self.state in wanted
            self._changed.wait_for(self._listener_is_idle, timeout_s)
            return is_reached

    def _listener_is_idle(self) -> bool:
        thread = self._listener_thread
        return thread == threading.get_ident() or (thread is None and not self._undelivered)

    def _follow_threads(self, why: str) -> None:
        with self._changed:
            states = [s for s in self._threads.values() if s is not ThreadState.PENDING_SHUTDOWN]
            running = bool(states) and all(s is ThreadState.RUNNING for s in states)
        if self.state is ClientState.REBALANCING and running:
            self.try_transition(ClientState.RUNNING, why)
        elif self.state is ClientState.RUNNING and states and not running:
            self.try_transition(ClientState.REBALANCING, why)

    def _on_change(self, new: ClientState, old: ClientState, why: str) -> None:
        logger.info("%s: %s to %s (%s)", self._application_id, old.name, new.name, why)
        if self._recorder is not None:
            self._recorder(new, old, why)
        self._undelivered.append((new, old))

    def _notify_listener(self) -> None:
        """Call the listener with the pending changes; reentrant."""
        with self._listener_lock:
            outer = self._listener_thread
            while (change := self._next_undelivered()) is not None:
                if self._listener is None:
                    continue
                try:
                    self._listener(*change)
                except Exception:
                    logger.exception("the state listener failed")
            with self._changed:
                self._listener_thread = outer
                self._changed.notify_all()

    def _next_undelivered(self) -> tuple[ClientState, ClientState] | None:
        with self._changed:
            self._listener_thread = threading.get_ident()
            return self._undelivered.popleft() if self._undelivered else None
