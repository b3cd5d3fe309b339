"""What a record cache gives up, on its way downstream."""

from __future__ import annotations

from millstream.operators.batch import Batch, Order, Origin
from millstream.operators.operator import Output
from millstream.state.caches.cache_entries import FlushedChanges


def emit_flushed(changes: FlushedChanges | None, output: Output, after: Order = ()) -> None:
    """Hand flushed changes on as records, each with the place that its last change was read from.

    Args:
        changes: what was flushed; None if nothing was.
        output: where it goes.
        after: the place in depth-first order of the record that made the cache evict something;
            empty for a flush.
    """
    if changes is None or not changes.keys:
        return
    size = len(changes.keys)
    output.emit(
        Batch(
            changes.keys,
            changes.new_values,
            changes.timestamps,
            range(size),
            Origin(changes.places, changes.offsets, changes.headers),
            [(*after, index) for index in range(size)] if output.ordered else None,
            None,
            changes.old_values,
        )
    )
