"""Flushing the caches of a task's stores without a task: for tests of the stores alone."""

from __future__ import annotations

from collections.abc import Callable

from millstream.state.caches.cache_entries import FlushedChanges
from millstream.state.task_stores import TaskStores


def flush_caches(stores: TaskStores, forward: Callable[[str, FlushedChanges], None]) -> None:
    """Flush each cache once, in the order of the stores, and hand on what is to be forwarded.

    Args:
        stores: open.
        forward: takes the name of a store and its changes.
    """
    for name, cache in stores.caches().items():
        changes = cache.flush()
        if changes is not None:
            forward(name, changes)
        stores.flush_silently(name)
