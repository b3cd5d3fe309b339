"""Reading a store that is at hand, for a view: without threads, for tests and examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.query.pages import StoreIterator
from millstream.query.store_types import QueryableStoreType, S
from millstream.state.opening.open_store import OpenStore
from millstream.state.queries.codec import Pairs, StoreCodec
from millstream.state.queries.reads import Read, nothing


class StoreAtHand:
    """Reads one open store of one task.

    Args:
        opened: the store.
    """

    def __init__(self, opened: OpenStore) -> None:
        self._opened = opened

    def first(self, read: Read, finish: Callable[[Pairs], Any]) -> Any:
        """The one value; see `Reading`."""
        return finish(self._read(read))

    def every(self, read: Read, finish: Callable[[Pairs], Any]) -> StoreIterator[Any]:
        """What there is; see `Reading`."""
        pairs = self._read(read)
        return StoreIterator(iter(finish(pairs)))

    def _read(self, read: Read) -> Pairs:
        reader = self._opened.reader
        pairs = None if reader is None else reader.read(read)
        return nothing() if pairs is None else pairs


def view_of(opened: OpenStore, codec: StoreCodec, kind: QueryableStoreType[S]) -> S:
    """A view of one open store of one task.

    Args:
        opened: the store.
        codec: its serdes.
        kind: as what it is asked; it must accept it.
    """
    return kind.view(codec, StoreAtHand(opened), timestamped=kind.timestamped)
