"""Which applications this process has started and not closed."""

from __future__ import annotations

import threading
from typing import Generic, Protocol, TypeVar

from millstream.config import StreamsConfig
from millstream.errors import IllegalStateError
from millstream.runtime.states import ClientState
from millstream.state.directories.host_path import state_dir_here

_FINAL = frozenset({ClientState.NOT_RUNNING, ClientState.ERROR})


class HasState(Protocol):
    """An application, as far as it matters here."""

    @property
    def state(self) -> ClientState:
        """Where it is."""


A = TypeVar("A", bound=HasState)


class StartedApplications(Generic[A]):
    """At most one for each application id, cluster and state directory. Usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: dict[tuple[str, ...], A] = {}

    def add(self, config: StreamsConfig, application: A) -> None:
        """An application is about to start.

        Raises:
            IllegalStateError: another one is running in its place.
        """
        servers = sorted(each.strip() for each in config.bootstrap_servers.split(","))
        key = (config.application_id, str(state_dir_here(config.state_dir).resolve()), *servers)
        with self._lock:
            self._started = {key: each for key, each in self._started.items() if _runs(each)}
            other = self._started.setdefault(key, application)
        if other is not application:
            raise IllegalStateError(
                f"This process runs {config.application_id} already: {other!r}. Close that one "
                "first, with its close(); if no variable holds it any more (a notebook's cell was "
                "run again), by: for each in KafkaStreams.running(): each.close(). A second "
                "instance beside it needs a state_dir of its own."
            )

    def all(self) -> list[A]:
        """Those that run, in the order in which they were started."""
        with self._lock:
            return [each for each in self._started.values() if _runs(each)]


def _runs(application: HasState) -> bool:
    return application.state not in _FINAL
