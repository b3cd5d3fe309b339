"""How the result of an operation is kept in a store: `store=` in the DSL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, NoReturn

from millstream.durations import milliseconds
from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.state.builders.key_value import KeyValueStoreBuilder
from millstream.state.builders.store_builder import StoredK, StoredV
from millstream.state.builders.versioned import VersionedStoreBuilder, VersionedStoreSupplier
from millstream.state.builders.windows import SessionStoreSupplier, WindowStoreSupplier
from millstream.state.stores import KeyValueStoreSupplier
from millstream.topology.arguments import checked_serdes, wrong_type
from millstream.topology.call_site import call_site
from millstream.topology.naming import Names, checked_name

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # What is given no serde is a store of Never, which passes for a store of anything: the types
    # are those of the operation then.
    KeptK = TypeVar("KeptK", covariant=True, default=Never)
    KeptV = TypeVar("KeptV", covariant=True, default=Never)
else:
    from typing import TypeVar

    KeptK = TypeVar("KeptK", covariant=True)
    KeptV = TypeVar("KeptV", covariant=True)

#: A store that `Stores` makes.
StoreSupplier = (
    KeyValueStoreSupplier | VersionedStoreSupplier | WindowStoreSupplier | SessionStoreSupplier
)


@dataclass(frozen=True)
class Materialized(Generic[KeptK, KeptV]):
    """How a table is kept: under which name, in what, and whether it is cached and logged.

    A store without a name is called after its operation and cannot be queried. Its name changes
    when an operation is inserted before it in the program, and the state is then left behind.

    Args:
        name: the store's name; 1 to 249 ASCII letters, digits, `.`, `_` and `-`.
        kind: what it is made of; by default the config's `default_dsl_store`.
        supplier: a store from `Stores`, in place of name and kind.
        key: the serde of its keys; by default that of the stream.
        value: the serde of its values; by default that of the operation's result.
        caching: whether several updates of a key between two commits are seen as one downstream
            and in the changelog; by default yes. Versioned stores are never cached.
        logging: whether its changes are kept in a changelog topic, from which another instance can
            restore it; or the topic's config, which implies yes.
        retention: how long windows and sessions are kept.
        history_retention: how long old versions are kept, which makes the store versioned.

    Raises:
        TopologyError: a name is not legal, or name, kind and supplier contradict each other.
        ConfigError: a retention is negative.
        TypeError: something is of a wrong type.

    Example:
        >>> Materialized("counts", kind="in_memory", logging={"retention.ms": "86400000"}).name
        'counts'
    """

    name: str | None = None
    _: KW_ONLY
    kind: Literal["rocksdb", "in_memory", "versioned"] | None = None
    supplier: StoreSupplier | None = None
    key: Serde[KeptK] | None = None
    value: Serde[KeptV] | None = None
    caching: bool | None = None
    logging: bool | Mapping[str, str] = True
    retention: timedelta | None = None
    history_retention: timedelta | None = None

    def __post_init__(self) -> None:
        if self.supplier is not None and not isinstance(self.supplier, StoreSupplier):
            raise wrong_type(
                "A table is kept in a store that is given by its name, by a Materialized, or by a "
                "supplier like Stores.persistent_key_value('counts'), but this one is "
                f"{self.supplier!r}."
            )
        checked_serdes("Materialized", key=self.key, value=self.value)
        changelog_options(self.logging)
        if not isinstance(self.caching, bool | None):
            raise wrong_type(f"caching= takes True or False, but got {self.caching!r}.")
        for what, span in (
            ("retention", self.retention),
            ("history_retention", self.history_retention),
        ):
            if span is not None:
                milliseconds("Materialized", what, span)
        if self.store_name is not None:
            checked_name(self.store_name)
        if self.supplier is not None and (
            self.name not in (None, self.supplier.name) or self.kind is not None
        ):
            raise TopologyError(
                "A store's supplier brings its own name and kind, so Materialized takes either "
                "supplier=... or name and kind=..., not both.",
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
        """The name that the user gave, directly or with a supplier."""
        return self.name if self.supplier is None else self.supplier.name

    @property
    def is_versioned(self) -> bool:
        """Whether old versions of values are kept as well."""
        return (
            self.kind == "versioned"
            or self.history_retention is not None
            or isinstance(self.supplier, VersionedStoreSupplier)
        )

    def versioned_supplier(self, name: str) -> VersionedStoreSupplier:
        """How long versions are kept.

        Args:
            name: the store's name.

        Raises:
            TopologyError: the user did not say how long.
        """
        if isinstance(self.supplier, VersionedStoreSupplier):
            return self.supplier
        if self.history_retention is None:
            _refuse(
                f"The versioned store {name!r} must know how long versions are kept. "
                "Give history_retention=..., a timedelta."
            )
        return VersionedStoreSupplier(name, self.history_retention)


#: Whatever `store=` takes.
StoreChoice = str | Materialized[StoredK, StoredV] | StoreSupplier | None

#: The store of a table by key.
TableStoreBuilder = KeyValueStoreBuilder | VersionedStoreBuilder


def materialized(store: StoreChoice) -> Materialized[Any, Any]:
    """What `store=` means: a name, a supplier, or nothing in particular."""
    if store is None:
        return Materialized()
    if isinstance(store, Materialized):
        return store
    if isinstance(store, str):
        return Materialized(store)
    return Materialized(supplier=store)


def key_value_builder(
    choice: Materialized[Any, Any],
    names: Names,
    prefix: str,
    *,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
) -> TableStoreBuilder:
    """The builder of the store of a table: a key-value store, or a versioned one.

    Args:
        choice: what the user wants.
        names: the counter; it gives a name if the user did not.
        prefix: the beginning of a generated name, for example `KSTREAM-REDUCE-`.
        key_serde: of the keys, unless the user chose one.
        value_serde: of the values, unless the user chose one.

    Raises:
        TopologyError: the user asked for what the store of a table cannot be.
    """
    if choice.retention is not None:
        _refuse("A retention is for windows and sessions only; this store keeps its latest values.")
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
        _refuse(
            f"The store {name!r} backs a table by key, which is kept in a key-value store, but the "
            f"supplier is a {type(supplier).__name__}."
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
    """Whether a store has a changelog, and the config of that.

    Args:
        logging: what the user wants: yes, no, or yes with a config.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(logging, bool):
        return logging, {}
    if not isinstance(logging, Mapping):
        raise wrong_type(
            "logging= takes True, False, or the config of the changelog topic, for example "
            f"{{'retention.ms': '86400000'}}, but got {logging!r}."
        )
    return True, dict(logging)


def _refuse(why: str) -> NoReturn:
    raise TopologyError(why, declared_at=call_site())
