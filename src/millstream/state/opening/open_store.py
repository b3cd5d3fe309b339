"""What a store is to its task once it is open."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from millstream.state.caches.record_cache import RecordCache
from millstream.state.changelogs.restore import ApplyRecords
from millstream.state.queries.readers import StoreReader
from millstream.state.queries.store_position import StorePosition
from millstream.state.storage.bytes_store import Committable


@dataclass(slots=True)
class OpenStore:
    """One store of a task, with those of its layers that somebody asks for by name.

    Args:
        store: what processors get.
        table: what the DSL's operators get, for example a `TimestampedTable`; None for stores which
            only processors use.
        base: the lowest writable layer: commits, restoration, closing.
        apply: writes changelog records to the store.
        cache: the record cache, None without caching.
        keeps_offset: whether `base` keeps the changelog offset with its data. For a persistent
            store which does not, the task keeps it in its checkpoint file.
        before_commit: writes and logs what the store only does once a commit.
        on_recycle: forgets what was concluded from the data, which others may change from now on.
        reader: reads it for queries; None if it takes none.
        position: of what processors put.
    """

    store: Any
    table: Any
    base: Committable
    apply: ApplyRecords
    cache: RecordCache | None = None
    keeps_offset: bool = True
    before_commit: Callable[[], None] | None = None
    on_recycle: Callable[[], None] | None = None
    reader: StoreReader | None = None
    position: StorePosition = field(default_factory=StorePosition)

    @property
    def persistent(self) -> bool:
        """Whether the data survives its process."""
        return self.base.persistent

    @property
    def stream_time(self) -> int | None:
        """The latest time that was put into a window or session store; None for other stores."""
        return getattr(self.base, "observed_time", None)

    def close(self) -> None:
        """Release everything; what is not committed is dropped."""
        with ExitStack() as closing:
            closing.callback(self.base.close)
            if self.cache is not None:
                closing.callback(self.cache.close)
            self.store.close()
