"""Failures of stores and changelogs, which user code may catch, wrap or hide."""

from __future__ import annotations


class EngineFailures:
    """Records the first engine failure of one task.

    User code calls stores, and stores call their storage and changelog. If one of these fails, the
    store and its changelog may differ, so the task must not commit, regardless of what user code
    does with the error. No exception handler is called, and the task fails at the end of its batch
    at the latest. Storages, changelogs and nodes record each failure before they raise it.

    Args:
        shared: the failures of the global stores, which tasks read.
    """

    def __init__(self, shared: EngineFailures | None = None) -> None:
        self._shared = shared
        self._first: Exception | None = None

    @property
    def first(self) -> Exception | None:
        """The first failure since the stores were opened, if any."""
        if self._first is None and self._shared is not None:
            return self._shared.first
        return self._first

    def record(self, error: Exception) -> None:
        """Record a failure, unless another one was recorded before."""
        if self._first is None:
            self._first = error

    def reset(self) -> None:
        """Clear the failure.

        Call this when the stores are reopened, or when the failure does not affect the task.
        """
        self._first = None
        if self._shared is not None:
            self._shared.reset()

    def raise_first(self) -> None:
        """Raise the first failure, if any.

        Raises:
            Exception: the recorded failure.
        """
        failure = self.first
        if failure is not None:
            raise failure
