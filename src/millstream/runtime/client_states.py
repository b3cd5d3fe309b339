"""The state of an application instance, from the states of its stream threads."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from millstream.clock import Clock
from millstream.runtime.state_machine import StateMachine
from millstream.runtime.states import CLIENT_STATES, ClientState, OwnedTask, ThreadState

logger = logging.getLogger(__name__)

StateListener = Callable[[ClientState, ClientState], Any]
#: Takes the new state, the old one, and why.
StateStory = Callable[[ClientState, ClientState, str], None]

_FINAL = frozenset({ClientState.NOT_RUNNING, ClientState.ERROR})
_LIVE = frozenset({ClientState.REBALANCING, ClientState.RUNNING})


class ClientStates:
    """What the threads amount to (Kafka Streams' `KafkaStreams.State`), for callers on any thread.

    RUNNING when every thread that lives is RUNNING; REBALANCING while any of them is not.

    The listener is called by whoever changes the state, one call at a time and in the order of the
    changes, but outside of the lock: however long it takes, others may ask how things are.

    Args:
        application_id: for the log.
        clock: dates the story.
    """

    def __init__(self, application_id: str, clock: Clock) -> None:
        self._changed = threading.Condition()
        self._threads: dict[str, ThreadState] = {}
        self._tasks: dict[str, dict[str, OwnedTask]] = {}
        self._listener: StateListener | None = None
        self._untold: deque[tuple[ClientState, ClientState]] = deque()
        self._telling = threading.RLock()
        #: The thread that calls the listener just now.
        self._teller: int | None = None
        self._story: StateStory | None = None
        self._machine = StateMachine(
            f"Application {application_id}",
            ClientState.CREATED,
            CLIENT_STATES,
            clock,
            self._on_change,
        )
        self._application_id = application_id

    @property
    def state(self) -> ClientState:
        """Where the instance is."""
        return self._machine.state

    @property
    def is_final(self) -> bool:
        """Whether the instance has ended; it cannot be started again."""
        return self.state in _FINAL

    @property
    def is_live(self) -> bool:
        """Whether the instance has been started and is not closing."""
        return self.state in _LIVE

    @property
    def story(self) -> list[str]:
        """The last changes of state, oldest first."""
        return self._machine.story

    def listen(self, listener: StateListener | None) -> None:
        """Call `listener(new, old)` after each change."""
        self._listener = listener

    def remember(self, story: StateStory) -> None:
        """Call `story(new, old, why)` at each change, before the listener. It must not fail."""
        self._story = story

    def become(self, state: ClientState, why: str) -> bool:
        """Change the state if the table allows it; whether it did."""
        with self._changed:
            if not self._machine.may_become(state):
                return False
            self._machine.transition_to(state, why)
            self._changed.notify_all()
        self._tell()
        return True

    def thread_is(self, name: str, state: ThreadState, why: str) -> None:
        """A thread has changed its state."""
        with self._changed:
            if state is ThreadState.DEAD:
                self._threads.pop(name, None)
                self._tasks.pop(name, None)
            else:
                self._threads[name] = state
        self._follow_threads(f"{name} is {state.name}: {why}")

    def tasks_are(self, name: str, tasks: dict[str, OwnedTask]) -> None:
        """A thread has told what it owns, by task id."""
        with self._changed:
            self._tasks[name] = tasks

    def threads(self) -> dict[str, tuple[ThreadState, dict[str, OwnedTask]]]:
        """The threads that live: name → state and tasks by id."""
        with self._changed:
            return {
                name: (state, dict(self._tasks.get(name, {})))
                for name, state in sorted(self._threads.items())
            }

    def wait_for(self, wanted: frozenset[ClientState], timeout_s: float | None) -> bool:
        """Wait until the state is one of these or final, and the listener has been told, unless it
        is the listener that waits; whether it is one of these."""
        with self._changed:
            self._changed.wait_for(lambda: self.state in wanted or self.is_final, timeout_s)
            is_there = self.state in wanted
            self._changed.wait_for(self._is_told, timeout_s)
            return is_there

    def _is_told(self) -> bool:
        is_telling = self._teller is not None
        return self._teller == threading.get_ident() or not (self._untold or is_telling)

    def _follow_threads(self, why: str) -> None:
        with self._changed:
            states = [s for s in self._threads.values() if s is not ThreadState.PENDING_SHUTDOWN]
            running = bool(states) and all(s is ThreadState.RUNNING for s in states)
        if self.state is ClientState.REBALANCING and running:
            self.become(ClientState.RUNNING, why)
        elif self.state is ClientState.RUNNING and states and not running:
            self.become(ClientState.REBALANCING, why)

    def _on_change(self, new: ClientState, old: ClientState, why: str) -> None:
        logger.info("%s: %s to %s (%s)", self._application_id, old.name, new.name, why)
        if self._story is not None:
            self._story(new, old, why)
        self._untold.append((new, old))

    def _tell(self) -> None:
        """Call the listener with what it has not been told yet; also from within it."""
        with self._telling:
            outer = self._teller
            while (change := self._next_untold()) is not None:
                if self._listener is None:
                    continue
                try:
                    self._listener(*change)
                except Exception:
                    logger.exception("the state listener failed")
            with self._changed:
                self._teller = outer
                self._changed.notify_all()

    def _next_untold(self) -> tuple[ClientState, ClientState] | None:
        with self._changed:
            self._teller = threading.get_ident()
            return self._untold.popleft() if self._untold else None
