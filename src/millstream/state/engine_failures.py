"""Failures of the engine that user code may catch, wrap or hide."""

from __future__ import annotations


class EngineFailures:
    """The first failure of the engine below the user code of one task.

    User code calls stores, and a store calls its storage and its changelog. If one of these fails,
    the store and its changelog may differ, so the task must not commit, whatever the user code does
    with the error: an exception handler is not called, and the task fails at the latest when its
    batch is done. Storages, changelogs and nodes note failures where they raise them.

    Args:
        shared: failures of the global stores, which tasks read.
    """

    def __init__(self, shared: EngineFailures | None = None) -> None:
        self._shared = shared
        self._first: Exception | None = None

    @property
    def first(self) -> Exception | None:
        """The first failure since the stores were opened, if there is one."""
        if self._first is None and self._shared is not None:
            return self._shared.first
        return self._first

    def note(self, error: Exception) -> None:
        """Keep a failure."""
        if self._first is None:
            self._first = error

    def forget(self) -> None:
        """Begin anew: the stores are opened again, or the failure concerns no task."""
        self._first = None
        if self._shared is not None:
            self._shared.forget()

    def check(self) -> None:
        """Raise the first failure, if there is one.

        Raises:
            Exception: the failure itself.
        """
        failure = self.first
        if failure is not None:
            raise failure
