"""How long the driver waits for stream threads, and how often it starts one again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RestartPolicy:
    """When a stream thread that dies is started again, and when that is given up.

    Args:
        backoff_ms: pause before the first restart, in milliseconds; doubled for each further one.
        max_backoff_ms: the longest pause.
        calm_ms: after running for so long the next pause is a first one.
        max_unproven: how many jobs in a row may fail while the thread has never registered: Spark
            or the machine is then not able to run it.
    """

    backoff_ms: int = 250
    max_backoff_ms: int = 10_000
    calm_ms: int = 60_000
    max_unproven: int = 5


@dataclass(frozen=True)
class Patience:
    """How long the driver waits for a stream thread that is out of reach.

    Args:
        register_ms: until a submitted thread has registered, in milliseconds.
        start_ms: the same for one that has its task slot: it is being started, which takes long on
            a busy machine, or where its packages are unpacked first.
        reconnect_ms: until one that has lost its connection is back or has ended; longer than the
            thread's own grace period.
    """

    register_ms: int = 30_000
    start_ms: int = 120_000
    reconnect_ms: int = 90_000
