"""The implementation of record caches: Python or C.

Python entries and C functions are not compatible, so a cache uses one implementation throughout.
The loops that modify its entries use the same implementation (`operators/aggregates/`).
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Final, NamedTuple

from millstream.native import compiled, extension
from millstream.state.caches.cache_entries import (
    CachedEntry,
    Columns,
    EvictionOrder,
    PureCachedEntry,
    PureEvictionOrder,
    pure_columns_of,
    pure_mark_flushed,
    pure_new_entries,
    pure_remove_entries,
    pure_sorted_by_change,
)

_Table = MutableMapping[bytes, CachedEntry]


class CacheImplementation(NamedTuple):
    """The entry type, eviction order and `pure_...` functions, in Python or C."""

    is_compiled: bool
    make_entry: Callable[[bytes, bytes | None, int, int], CachedEntry]
    make_table: Callable[[], _Table]
    make_order: Callable[[], EvictionOrder]
    new_entries: Callable[[list[bytes], int, int], list[CachedEntry]]
    columns_of: Callable[[list[CachedEntry]], Columns]
    mark_flushed: Callable[[list[CachedEntry], list[bytes], int], int]
    sorted_by_change: Callable[[list[CachedEntry]], list[CachedEntry]]
    remove_entries: Callable[[_Table, list[CachedEntry]], tuple[int, list[CachedEntry]]]


_PURE: Final = CacheImplementation(
    is_compiled=False,
    make_entry=PureCachedEntry,
    make_table=dict,
    make_order=PureEvictionOrder,
    new_entries=pure_new_entries,
    columns_of=pure_columns_of,
    mark_flushed=pure_mark_flushed,
    sorted_by_change=pure_sorted_by_change,
    remove_entries=pure_remove_entries,
)


def cache_implementation(speedups: bool | None) -> CacheImplementation:
    """Return the implementation to use, in C or Python.

    The C extension is used if it is available and `speedups` is not False.
    """
    if speedups is False or isinstance(extension(), str):
        return _PURE
    return CacheImplementation(
        is_compiled=True,
        make_entry=compiled(PureCachedEntry, "CachedEntry"),
        make_table=compiled(dict, "EntryTable"),
        make_order=compiled(PureEvictionOrder, "EvictionOrder"),
        new_entries=compiled(pure_new_entries, "new_entries"),
        columns_of=compiled(pure_columns_of, "columns_of"),
        mark_flushed=compiled(pure_mark_flushed, "mark_flushed"),
        sorted_by_change=compiled(pure_sorted_by_change, "sorted_by_change"),
        remove_entries=compiled(pure_remove_entries, "remove_entries"),
    )
