"""Errors that say in which task something went wrong, and of which node."""

from __future__ import annotations

from collections.abc import Callable

from millstream.errors import StreamsError, summary_of
from millstream.record import TaskId


def placed(
    error: Exception, task_id: TaskId, declared_at: Callable[[str | None], str | None]
) -> StreamsError:
    """An error with its task as its place; one of Millstream's keeps what it knows better.

    Args:
        error: what went wrong.
        task_id: where.
        declared_at: file and line of the user's program that declared a node.
    """
    if isinstance(error, StreamsError):
        if error.task_id is None:
            error.task_id = task_id
        if error.declared_at is None:
            error.declared_at = declared_at(error.node)
        return error
    failure = StreamsError(f"Task {task_id} failed: {summary_of(error)}.", task_id=task_id)
    failure.__cause__ = error
    return failure
