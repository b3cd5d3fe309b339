"""Thread, task and instance states, with the transitions of Kafka Streams."""

from __future__ import annotations

import enum
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from millstream.clock import Clock
from millstream.errors import IllegalStateError


class ThreadState(enum.Enum):
    """The state of a stream thread.

    ::

        CREATED ──► STARTING ──► PARTITIONS_ASSIGNED ◄──► PARTITIONS_REVOKED
           │            │              │     ▲                  ▲   │
           │            │              ▼     │                  │   │
           │            │            RUNNING ┴──────────────────┘   │
           ▼            ▼              ▼                            ▼
        PENDING_SHUTDOWN ◄──────────────────────────────────────────┘
           ▼
          DEAD
    """

    CREATED = "CREATED"
    STARTING = "STARTING"
    PARTITIONS_REVOKED = "PARTITIONS_REVOKED"
    PARTITIONS_ASSIGNED = "PARTITIONS_ASSIGNED"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    DEAD = "DEAD"


_T = ThreadState
THREAD_TRANSITIONS: Final[Mapping[ThreadState, frozenset[ThreadState]]] = {
    _T.CREATED: frozenset({_T.STARTING, _T.PENDING_SHUTDOWN}),
    _T.STARTING: frozenset({_T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.PENDING_SHUTDOWN}),
    _T.PARTITIONS_REVOKED: frozenset(
        {_T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.PENDING_SHUTDOWN}
    ),
    _T.PARTITIONS_ASSIGNED: frozenset(
        {_T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.RUNNING, _T.PENDING_SHUTDOWN}
    ),
    _T.RUNNING: frozenset({_T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.PENDING_SHUTDOWN}),
    _T.PENDING_SHUTDOWN: frozenset({_T.DEAD}),
    _T.DEAD: frozenset(),
}


class TaskState(enum.Enum):
    """The state of a task.

    ::

        CREATED ──► STANDBY ──► RESTORING ──► RUNNING
           └───────────────────► ▲               │
                       ▲         │               │
                       └───── SUSPENDED ◄────────┘   from all states above
                                 ▼
                              CLOSED ──► CREATED     revived, its state deleted

    - CREATED: the stores are not open yet.
    - STANDBY: the stores follow their changelogs; no input is read.
    - RESTORING: the stores are restored before processing starts.
    - RUNNING: the task processes records.
    - SUSPENDED: stopped, with open stores for the next state. The work is committed, unless the
      task is closed after a failure.
    - CLOSED: nothing is open. Tasks that were never opened also pass through SUSPENDED.

    Follows Kafka Streams, except for STANDBY: in Kafka Streams, a standby is a separate kind of
    task, and a recycled task is recreated with its stores.
    """

    CREATED = "CREATED"
    STANDBY = "STANDBY"
    RESTORING = "RESTORING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    CLOSED = "CLOSED"


class OwnedTask(NamedTuple):
    """A task as reported by its thread; `state` is the name of its `TaskState`."""

    state: str
    #: Whether the task is a standby, which the state only shows once its stores are open.
    standby: bool = False


_K = TaskState
TASK_TRANSITIONS: Final[Mapping[TaskState, frozenset[TaskState]]] = {
    _K.CREATED: frozenset({_K.STANDBY, _K.RESTORING, _K.SUSPENDED}),
    _K.STANDBY: frozenset({_K.RESTORING, _K.SUSPENDED}),
    _K.RESTORING: frozenset({_K.RUNNING, _K.SUSPENDED}),
    _K.RUNNING: frozenset({_K.SUSPENDED}),
    _K.SUSPENDED: frozenset({_K.STANDBY, _K.RESTORING, _K.CLOSED}),
    _K.CLOSED: frozenset({_K.CREATED}),
}


class ClientState(enum.Enum):
    """The state of an application instance, derived from its stream threads.

    ::

        CREATED ──► REBALANCING ◄──► RUNNING
           │             │  └──────────┤
           ▼             ▼             ▼
        PENDING_SHUTDOWN ◄─┘      PENDING_ERROR
           ▼                           ▼
        NOT_RUNNING                  ERROR

    Example:
        >>> streams = KafkaStreams(topology, config)
        >>> streams.state is ClientState.CREATED
        True
    """

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"


_C = ClientState
CLIENT_TRANSITIONS: Final[Mapping[ClientState, frozenset[ClientState]]] = {
    _C.CREATED: frozenset({_C.REBALANCING, _C.PENDING_SHUTDOWN}),
    _C.REBALANCING: frozenset({_C.RUNNING, _C.PENDING_SHUTDOWN, _C.PENDING_ERROR}),
    _C.RUNNING: frozenset({_C.REBALANCING, _C.PENDING_SHUTDOWN, _C.PENDING_ERROR}),
    _C.PENDING_SHUTDOWN: frozenset({_C.NOT_RUNNING}),
    _C.NOT_RUNNING: frozenset(),
    _C.PENDING_ERROR: frozenset({_C.ERROR}),
    _C.ERROR: frozenset(),
}


S = TypeVar("S", bound=enum.Enum)

#: The maximum number of transitions in the history.
_HISTORY_LENGTH = 20


class StateMachine(Generic[S]):
    """A state, its allowed transitions, and the history of transitions.

    The listener is called with (new, old, why) after each transition.
    """

    def __init__(
        self,
        subject: str,
        start: S,
        transitions: Mapping[S, frozenset[S]],
        clock: Clock,
        listener: Callable[[S, S, str], None] | None = None,
    ) -> None:
        self.subject = subject
        self.state = start
        self._transitions = transitions
        self._clock = clock
        self._listener = listener
        self._history: deque[str] = deque(maxlen=_HISTORY_LENGTH)

    @property
    def history(self) -> list[str]:
        """The latest transitions, oldest first."""
        return list(self._history)

    def can_transition_to(self, state: S) -> bool:
        return state in self._transitions[self.state]

    def transition_to(self, state: S, why: str) -> None:
        """Change the state.

        Raises IllegalStateError with the history if the transition is not allowed.
        """
        old = self.state
        if not self.can_transition_to(state):
            raise IllegalStateError(
                f"{self.subject} cannot go from {old.name} to {state.name} ({why}). "
                f"History: {'; '.join(self._history) or 'no transitions yet'}."
            )
        self._history.append(
            f"{_local_time(self._clock.now_ms())} {old.name} to {state.name}: {why}"
        )
        self.state = state
        if self._listener is not None:
            self._listener(state, old, why)


def _local_time(now_ms: int) -> str:
    """Return the local time of day: `14:31:07.042`."""
    return f"{time.strftime('%H:%M:%S', time.localtime(now_ms // 1_000))}.{now_ms % 1_000:03}"
