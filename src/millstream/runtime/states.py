"""The states of threads, tasks and clients, and which may follow which (as in Kafka Streams)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple


class ThreadState(enum.Enum):
    """Where a stream thread is.

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
THREAD_STATES: Final[Mapping[ThreadState, frozenset[ThreadState]]] = {
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
    """Where a task is.

    ::

        CREATED ──► STANDBY ──► RESTORING ──► RUNNING
           └───────────────────► ▲               │
                       ▲         │               │
                       └───── SUSPENDED ◄────────┘   from all of these
                                 ▼
                              CLOSED ──► CREATED     revived, its state wiped

    - CREATED: its stores are not open yet.
    - STANDBY: its stores follow their changelogs; it reads no input.
    - RESTORING: its stores are brought up to date, to process then.
    - RUNNING: it processes.
    - SUSPENDED: it is committed and stopped, with its stores open for whatever it becomes next.
    - CLOSED: it has nothing open. Also what was never opened passes through SUSPENDED.

    Follows Kafka Streams, but for STANDBY: there, a standby is another kind of task, and a task
    that changes sides is made anew around its stores.
    """

    CREATED = "CREATED"
    STANDBY = "STANDBY"
    RESTORING = "RESTORING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    CLOSED = "CLOSED"


class OwnedTask(NamedTuple):
    """What a thread tells of a task that it owns.

    Args:
        state: the name of its `TaskState`.
        standby: whether it is to be a copy, which its state tells only once its stores are open.
    """

    state: str
    standby: bool = False


_K = TaskState
TASK_STATES: Final[Mapping[TaskState, frozenset[TaskState]]] = {
    _K.CREATED: frozenset({_K.STANDBY, _K.RESTORING, _K.SUSPENDED}),
    _K.STANDBY: frozenset({_K.RESTORING, _K.SUSPENDED}),
    _K.RESTORING: frozenset({_K.RUNNING, _K.SUSPENDED}),
    _K.RUNNING: frozenset({_K.SUSPENDED}),
    _K.SUSPENDED: frozenset({_K.STANDBY, _K.RESTORING, _K.CLOSED}),
    _K.CLOSED: frozenset({_K.CREATED}),
}


class ClientState(enum.Enum):
    """Where an application instance is: what its stream threads amount to.

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
CLIENT_STATES: Final[Mapping[ClientState, frozenset[ClientState]]] = {
    _C.CREATED: frozenset({_C.REBALANCING, _C.PENDING_SHUTDOWN}),
    _C.REBALANCING: frozenset({_C.RUNNING, _C.PENDING_SHUTDOWN, _C.PENDING_ERROR}),
    _C.RUNNING: frozenset({_C.REBALANCING, _C.PENDING_SHUTDOWN, _C.PENDING_ERROR}),
    _C.PENDING_SHUTDOWN: frozenset({_C.NOT_RUNNING}),
    _C.NOT_RUNNING: frozenset(),
    _C.PENDING_ERROR: frozenset({_C.ERROR}),
    _C.ERROR: frozenset(),
}
