"""Who is told of each task on its way, for traces."""

from __future__ import annotations

from typing import Any, Protocol

from millstream.subscriptions.context import ProcessingContext


class TaskTrace(Protocol):
    """The trace of one task."""

    def processing(self) -> Any:
        """A context manager around the synchronous part of its processing."""
        ...

    def completed(self, outcome: str, error: BaseException | None) -> None:
        """Its offset may be committed: it was completed, is to be retried, or has failed."""
        ...


class Tracing(Protocol):
    """Makes the traces of tasks. Whatever it raises is logged, and no concern of the task.

    Semantics: Decaton's `TracingProvider`.
    """

    def trace_for(self, context: ProcessingContext, subscription: str) -> TaskTrace:
        """Begin the trace of a task, perhaps a child of what its headers tell."""
        ...
