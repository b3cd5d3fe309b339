"""How windowed results are kept: `store=` of an aggregation by windows or sessions."""

from __future__ import annotations

from typing import Any, NoReturn

from millstream.durations import milliseconds
from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.state.builders.windows import (
    SessionStoreBuilder,
    SessionStoreSupplier,
    WindowStoreBuilder,
    WindowStoreKind,
    WindowStoreSupplier,
)
from millstream.topology.call_site import call_site
from millstream.topology.naming import Names
from millstream.topology.options.materialized import Materialized, changelog_options
from millstream.topology.options.windows import FixedSizeWindows, SessionWindows, SlidingWindows

#: The store of a table by window.
WindowedStoreBuilder = WindowStoreBuilder | SessionStoreBuilder


def window_builder(
    choice: Materialized[Any, Any],
    names: Names,
    prefix: str,
    windows: FixedSizeWindows,
    *,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
    emit_final: bool,
) -> WindowStoreBuilder:
    """The builder of the window store of a table.

    Args:
        choice: what the user wants.
        names: give a name if the user did not.
        prefix: the beginning of a generated name, for example `KSTREAM-REDUCE-`.
        windows: which windows are kept.
        key_serde: of the keys, unless the user chose one.
        value_serde: of the values, unless the user chose one.
        emit_final: whether windows are looked up by time, when they are closed.

    Raises:
        TopologyError: the user asked for what a window store cannot be.
    """
    name = names.store(prefix) if choice.store_name is None else choice.store_name
    what = "the size of its windows and their grace period"
    if isinstance(windows, SlidingWindows):
        what = "twice the time difference and the grace period"
    supplier = choice.supplier
    if isinstance(supplier, WindowStoreSupplier) and supplier.window_size_ms != windows.size_ms:
        _refuse(
            name,
            f"Store {name} is for windows of {supplier.window_size_ms} ms, but these are "
            f"{windows.size_ms} ms long. Give the store the same window size.",
        )
    logging, topic_config = changelog_options(choice.logging)
    return WindowStoreBuilder(
        name=name,
        kind=_kind(choice, name, WindowStoreSupplier),
        key_serde=key_serde if choice.key is None else choice.key,
        value_serde=value_serde if choice.value is None else choice.value,
        retention_ms=_retention_ms(choice, name, windows.retention_ms, what),
        window_size_ms=windows.size_ms,
        timestamped=True,
        # Follows Kafka Streams: final results of sliding windows bypass the cache.
        caching=choice.caching is not False
        and not (emit_final and isinstance(windows, SlidingWindows)),
        logging=logging,
        topic_config=topic_config,
        time_ordered=emit_final,
    )


def session_builder(
    choice: Materialized[Any, Any],
    names: Names,
    prefix: str,
    windows: SessionWindows,
    *,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
    emit_final: bool,
) -> SessionStoreBuilder:
    """The builder of the session store of a table; the arguments are those of `window_builder`.

    Raises:
        TopologyError: the user asked for what a session store cannot be.
    """
    name = names.store(prefix) if choice.store_name is None else choice.store_name
    what = "the inactivity gap and the grace period"
    logging, topic_config = changelog_options(choice.logging)
    return SessionStoreBuilder(
        name=name,
        kind=_kind(choice, name, SessionStoreSupplier),
        key_serde=key_serde if choice.key is None else choice.key,
        value_serde=value_serde if choice.value is None else choice.value,
        retention_ms=_retention_ms(choice, name, windows.retention_ms, what),
        # Follows Kafka Streams: final results of sessions bypass the cache.
        caching=choice.caching is not False and not emit_final,
        logging=logging,
        topic_config=topic_config,
        time_ordered=emit_final,
    )


def _kind(
    choice: Materialized[Any, Any],
    name: str,
    supplier: type[WindowStoreSupplier] | type[SessionStoreSupplier],
) -> WindowStoreKind | None:
    if choice.is_versioned:
        _refuse(
            name,
            f"Store {name} keeps windows, which have no earlier versions. Leave out "
            "kind='versioned' and history_retention.",
        )
    if choice.supplier is None:
        return choice.kind if choice.kind != "versioned" else None
    if not isinstance(choice.supplier, supplier):
        _refuse(
            name,
            f"Store {name} must be from a {supplier.__name__}, but the supplier is a "
            f"{type(choice.supplier).__name__}.",
        )
    return choice.supplier.kind


def _retention_ms(choice: Materialized[Any, Any], name: str, least_ms: int, what: str) -> int:
    retention_ms = least_ms
    if isinstance(choice.supplier, WindowStoreSupplier | SessionStoreSupplier):
        retention_ms = choice.supplier.retention_ms
    elif choice.retention is not None:
        retention_ms = milliseconds("Materialized", "retention", choice.retention)
    if retention_ms < least_ms:
        _refuse(
            name,
            f"Store {name} is to keep windows for {retention_ms} ms, but they are needed for "
            f"{least_ms} ms: {what}. Give a longer retention, or leave it out.",
        )
    return retention_ms


def _refuse(store: str, why: str) -> NoReturn:
    raise TopologyError(why, node=store, declared_at=call_site())
