"""The stores of tables with and without windows: the DSL's `store=` argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, NoReturn

from millstream.durations import milliseconds
from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.state.builders.store_builder import KeyValueStoreBuilder, StoredK, StoredV
from millstream.state.builders.versioned_builders import (
    VersionedStoreBuilder,
    VersionedStoreSupplier,
)
from millstream.state.builders.window_builders import (
    SessionStoreBuilder,
    SessionStoreSupplier,
    WindowStoreBuilder,
    WindowStoreKind,
    WindowStoreSupplier,
)
from millstream.state.stores import KeyValueStoreSupplier
from millstream.topology.argument_checks import check_serdes, type_error
from millstream.topology.call_site import call_site
from millstream.topology.naming import NameGenerator, checked_name
from millstream.topology.options.windows import FixedSizeWindows, SessionWindows, SlidingWindows

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # Without a serde, the type is Never, which is compatible with any type: the operation then
    # determines the types.
    MaterializedK = TypeVar("MaterializedK", covariant=True, default=Never)
    MaterializedV = TypeVar("MaterializedV", covariant=True, default=Never)
else:
    from typing import TypeVar

    MaterializedK = TypeVar("MaterializedK", covariant=True)
    MaterializedV = TypeVar("MaterializedV", covariant=True)

#: A store supplier from `Stores`.
StoreSupplier = (
    KeyValueStoreSupplier | VersionedStoreSupplier | WindowStoreSupplier | SessionStoreSupplier
)


@dataclass(frozen=True)
class Materialized(Generic[MaterializedK, MaterializedV]):
    """The store of a table: its name, kind, serdes, caching and changelog.

    A store without a name gets a generated name and cannot be queried. The generated name changes
    when an operation is inserted before it in the program, and the application then starts without
    the old state.

    Args:
        name: the store's name; 1 to 249 ASCII letters, digits, `.`, `_` and `-`.
        kind: the implementation; by default the config's `default_dsl_store`.
        supplier: a store supplier from `Stores`, instead of a name and kind.
        key: the serde of the keys; by default the serde of the stream.
        value: the serde of the values; by default the serde of the operation's result.
        caching: whether the record cache merges several updates of a key between two commits into
            one, both downstream and in the changelog. Caching is enabled by default, except for
            versioned stores, which are never cached.
        logging: whether the store has a changelog topic, from which another instance can restore
            the store; or the config of the changelog topic.
        retention: how long windows and sessions are stored.
        history_retention: how long old versions are stored. Setting this option makes the store
            versioned.

    Raises:
        TopologyError: a name is not legal, or name, kind and supplier contradict each other.
        ConfigError: a retention is negative.
        TypeError: an argument has the wrong type.

    Example:
        >>> Materialized("counts", kind="in_memory", logging={"retention.ms": "86400000"}).name
        'counts'
    """

    name: str | None = None
    _: KW_ONLY
    kind: Literal["rocksdb", "in_memory", "versioned"] | None = None
    supplier: StoreSupplier | None = None
    key: Serde[MaterializedK] | None = None
    value: Serde[MaterializedV] | None = None
    caching: bool | None = None
    logging: bool | Mapping[str, str] = True
    retention: timedelta | None = None
    history_retention: timedelta | None = None

    def __post_init__(self) -> None:
        if self.supplier is not None and not isinstance(self.supplier, StoreSupplier):
            raise type_error(
                "The store of a table must be a name, a Materialized, or a supplier such as "
                f"Stores.persistent_key_value('counts'), but got {self.supplier!r}."
            )
        check_serdes("Materialized", key=self.key, value=self.value)
        changelog_options(self.logging)
        if not isinstance(self.caching, bool | None):
            raise type_error(f"caching= takes True or False, but got {self.caching!r}.")
        for parameter, retention in (
            ("retention", self.retention),
            ("history_retention", self.history_retention),
        ):
            if retention is not None:
                milliseconds("Materialized", parameter, retention)
        if self.store_name is not None:
            checked_name(self.store_name)
        if self.supplier is not None and (
            self.name not in (None, self.supplier.name) or self.kind is not None
        ):
            raise TopologyError(
                "A supplier already defines the name and kind of its store. Pass either "
                "supplier=... or a name and kind=... to Materialized, not both.",
                declared_at=call_site(),
            )
        if self.kind not in (None, "rocksdb", "in_memory", "versioned"):
            raise TopologyError(
                f"There is no kind of store called {self.kind!r}. "
                "Choose 'rocksdb', 'in_memory' or 'versioned'.",
                declared_at=call_site(),
            )

    @property
    def store_name(self) -> str | None:
        """The name that the user set, directly or with a supplier."""
        return self.name if self.supplier is None else self.supplier.name

    @property
    def is_versioned(self) -> bool:
        """Whether the store contains old versions of values."""
        return (
            self.kind == "versioned"
            or self.history_retention is not None
            or isinstance(self.supplier, VersionedStoreSupplier)
        )

    def versioned_supplier(self, name: str) -> VersionedStoreSupplier:
        """Return the supplier of the versioned store.

        Raises:
            TopologyError: the history retention is not set.
        """
        if isinstance(self.supplier, VersionedStoreSupplier):
            return self.supplier
        if self.history_retention is None:
            _reject(
                f"The versioned store {name!r} needs a history retention. "
                "Pass history_retention=..., a timedelta."
            )
        return VersionedStoreSupplier(name, self.history_retention)


#: The type of `store=` arguments.
StoreChoice = str | Materialized[StoredK, StoredV] | StoreSupplier | None

#: The store of a table without windows.
TableStoreBuilder = KeyValueStoreBuilder | VersionedStoreBuilder


def materialized(store: StoreChoice) -> Materialized[Any, Any]:
    """Convert a `store=` argument to a `Materialized`."""
    if store is None:
        return Materialized()
    if isinstance(store, Materialized):
        return store
    if isinstance(store, str):
        return Materialized(store)
    return Materialized(supplier=store)


def key_value_builder(
    choice: Materialized[Any, Any],
    names: NameGenerator,
    prefix: str,
    *,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
) -> TableStoreBuilder:
    """Return the builder of a table's store: a key-value store or a versioned one.

    Args:
        names: generates the name of a store without a name.

    Raises:
        TopologyError: an option does not fit the store of a table.
    """
    if choice.retention is not None:
        _reject(
            "A retention is for windows and sessions only. Leave it out or, for a versioned store, "
            "pass history_retention=..."
        )
    supplier = choice.supplier
    logging, topic_config = changelog_options(choice.logging)
    name = names.store(prefix) if choice.store_name is None else choice.store_name
    key_serde = key_serde if choice.key is None else choice.key
    value_serde = value_serde if choice.value is None else choice.value
    if choice.is_versioned:
        history = choice.versioned_supplier(name)
        return VersionedStoreBuilder(
            name=name,
            history_ms=history.history_ms,
            segment_ms=history.segment_ms,
            key_serde=key_serde,
            value_serde=value_serde,
            logging=logging,
            topic_config=topic_config,
        )
    if supplier is not None and not isinstance(supplier, KeyValueStoreSupplier):
        _reject(
            f"The table needs a key-value store, but the supplier of the store {name!r} is a "
            f"{type(supplier).__name__}."
        )
    return KeyValueStoreBuilder(
        name=name,
        kind=choice.kind if supplier is None else supplier.kind,  # type: ignore[arg-type]
        key_serde=key_serde,
        value_serde=value_serde,
        timestamped=True,
        caching=choice.caching is not False,
        logging=logging,
        topic_config=topic_config,
        max_entries=None if supplier is None else supplier.max_entries,
    )


def changelog_options(logging: bool | Mapping[str, str]) -> tuple[bool, dict[str, str]]:
    """Return whether a store has a changelog, and the config of the topic.

    Raises:
        TypeError: `logging` is neither a bool nor a mapping.
    """
    if isinstance(logging, bool):
        return logging, {}
    if not isinstance(logging, Mapping):
        raise type_error(
            "logging= takes True, False, or the config of the changelog topic, for example "
            f"{{'retention.ms': '86400000'}}, but got {logging!r}."
        )
    return True, dict(logging)


#: The store of a windowed table.
WindowedStoreBuilder = WindowStoreBuilder | SessionStoreBuilder


def window_builder(
    choice: Materialized[Any, Any],
    names: NameGenerator,
    prefix: str,
    windows: FixedSizeWindows,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
    emit_final: bool,
) -> WindowStoreBuilder:
    """Return the builder of a table's window store.

    Args:
        emit_final: whether only final results are emitted, so that closed windows are looked up by
            time.

    Raises:
        TopologyError: an option does not fit a window store.
    """
    name = names.store(prefix) if choice.store_name is None else choice.store_name
    minimum = "the window size plus the grace period"
    if isinstance(windows, SlidingWindows):
        minimum = "twice the time difference plus the grace period"
    supplier = choice.supplier
    if isinstance(supplier, WindowStoreSupplier) and supplier.window_size_ms != windows.size_ms:
        _reject(
            f"The store {name} is for windows of {supplier.window_size_ms} ms, but the windows of "
            f"the aggregation are {windows.size_ms} ms long. Use the same size for the store.",
            name,
        )
    logging, topic_config = changelog_options(choice.logging)
    return WindowStoreBuilder(
        name=name,
        kind=_kind(choice, name, WindowStoreSupplier),
        key_serde=key_serde if choice.key is None else choice.key,
        value_serde=value_serde if choice.value is None else choice.value,
        retention_ms=_retention_ms(choice, name, windows.retention_ms, minimum),
        window_size_ms=windows.size_ms,
        timestamped=True,
        # As in Kafka Streams, final results of sliding windows bypass the cache.
        caching=choice.caching is not False
        and not (emit_final and isinstance(windows, SlidingWindows)),
        logging=logging,
        topic_config=topic_config,
        time_ordered=emit_final,
    )


def session_builder(
    choice: Materialized[Any, Any],
    names: NameGenerator,
    prefix: str,
    windows: SessionWindows,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
    emit_final: bool,
) -> SessionStoreBuilder:
    """Return the builder of a table's session store; see `window_builder`.

    Raises:
        TopologyError: an option does not fit a session store.
    """
    name = names.store(prefix) if choice.store_name is None else choice.store_name
    minimum = "the inactivity gap plus the grace period"
    logging, topic_config = changelog_options(choice.logging)
    return SessionStoreBuilder(
        name=name,
        kind=_kind(choice, name, SessionStoreSupplier),
        key_serde=key_serde if choice.key is None else choice.key,
        value_serde=value_serde if choice.value is None else choice.value,
        retention_ms=_retention_ms(choice, name, windows.retention_ms, minimum),
        # As in Kafka Streams, final results of sessions bypass the cache.
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
        _reject(
            f"The store {name} contains windows, which have no old versions. Leave out "
            "kind='versioned' and history_retention.",
            name,
        )
    if choice.supplier is None:
        return choice.kind if choice.kind != "versioned" else None
    if not isinstance(choice.supplier, supplier):
        _reject(
            f"The store {name} needs a {supplier.__name__}, but the supplier is a "
            f"{type(choice.supplier).__name__}.",
            name,
        )
    return choice.supplier.kind


def _retention_ms(
    choice: Materialized[Any, Any], name: str, minimum_ms: int, explanation: str
) -> int:
    retention_ms = minimum_ms
    if isinstance(choice.supplier, WindowStoreSupplier | SessionStoreSupplier):
        retention_ms = choice.supplier.retention_ms
    elif choice.retention is not None:
        retention_ms = milliseconds("Materialized", "retention", choice.retention)
    if retention_ms < minimum_ms:
        _reject(
            f"The store {name} has a retention of {retention_ms} ms, but windows are needed for "
            f"{minimum_ms} ms: {explanation}. Use a longer retention, or leave it out.",
            name,
        )
    return retention_ms


def _reject(message: str, store: str | None = None) -> NoReturn:
    raise TopologyError(message, node=store, declared_at=call_site())
