"""The classes and functions that record caches are made of, in Python or in C.

Entries of Python and functions of the extension do not go together, so a cache takes all from one
side. The loops that change its entries choose by the same side (`operators/aggregates/`).
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Final, NamedTuple

from millstream.compiled import compiled, extension
from millstream.state.caches.cache_entries import (
    CachedEntry,
    Columns,
    PureCachedEntry,
    pure_columns_of,
    pure_new_entries,
    pure_settle_entries,
)
from millstream.state.caches.eviction import (
    EvictionOrder,
    PureEvictionOrder,
    pure_in_order,
    pure_remove_entries,
)

_Table = MutableMapping[bytes, CachedEntry]


class CacheCode(NamedTuple):
    """One of the two sides.

    Args:
        is_compiled: whether it is the extension.
        make_entry: see `PureCachedEntry`.
        make_table: an empty mapping of entries by their keys.
        make_order: see `PureEvictionOrder`.
        new_entries: see `pure_new_entries`.
        columns_of: see `pure_columns_of`.
        settle_entries: see `pure_settle_entries`.
        in_order: see `pure_in_order`.
        remove_entries: see `pure_remove_entries`.
    """

    is_compiled: bool
    make_entry: Callable[[bytes, bytes | None, int, int], CachedEntry]
    make_table: Callable[[], _Table]
    make_order: Callable[[], EvictionOrder]
    new_entries: Callable[[list[bytes], int, int], list[CachedEntry]]
    columns_of: Callable[[list[CachedEntry]], Columns]
    settle_entries: Callable[[list[CachedEntry], list[bytes], int], int]
    in_order: Callable[[list[CachedEntry]], list[CachedEntry]]
    remove_entries: Callable[[_Table, list[CachedEntry]], tuple[int, list[CachedEntry]]]


_PURE: Final = CacheCode(
    is_compiled=False,
    make_entry=PureCachedEntry,
    make_table=dict,
    make_order=PureEvictionOrder,
    new_entries=pure_new_entries,
    columns_of=pure_columns_of,
    settle_entries=pure_settle_entries,
    in_order=pure_in_order,
    remove_entries=pure_remove_entries,
)


def cache_code(speedups: bool | None) -> CacheCode:
    """The side that a cache is made of.

    Args:
        speedups: the setting; False is for Python, else it is the extension where there is one.
    """
    if speedups is False or isinstance(extension(), str):
        return _PURE
    return CacheCode(
        is_compiled=True,
        make_entry=compiled(PureCachedEntry, "CachedEntry"),
        make_table=compiled(dict, "EntryTable"),
        make_order=compiled(PureEvictionOrder, "EvictionOrder"),
        new_entries=compiled(pure_new_entries, "new_entries"),
        columns_of=compiled(pure_columns_of, "columns_of"),
        settle_entries=compiled(pure_settle_entries, "settle_entries"),
        in_order=compiled(pure_in_order, "in_order"),
        remove_entries=compiled(pure_remove_entries, "remove_entries"),
    )
