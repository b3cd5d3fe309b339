"""What a record cache gives up, as a batch that goes downstream."""

from __future__ import annotations

from millstream.operators.batch import Batch, Order, Origin
from millstream.state.caches.cache_entries import FlushedChanges


def flushed_batch(changes: FlushedChanges, after: Order = ()) -> Batch:
    """Flushed changes as records, each with the place that its last change was read from.

    Args:
        changes: what was flushed.
        after: the place in depth-first order of the record that made the cache evict something;
            empty for a flush.
    """
    size = len(changes.keys)
    order: list[Order] = [(*after, index) for index in range(size)]
    origin = Origin(changes.places, changes.offsets, changes.headers)
    return Batch(
        changes.keys,
        changes.new_values,
        changes.timestamps,
        range(size),
        origin,
        order,
        None,
        changes.old_values,
    )
