"""How the result of an operation is kept in a store: `store=` in the DSL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any, Literal, NoReturn

from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.state.builders import KeyValueStoreBuilder
from millstream.state.stores import KeyValueStoreSupplier
from millstream.topology.call_site import call_site
from millstream.topology.naming import Names, checked_name


@dataclass(frozen=True, slots=True)
class Materialized:
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
            and in the changelog; by default yes.
        logging: whether its changes are kept in a changelog topic, from which another instance can
            restore it; or the topic's config, which implies yes.
        retention: how long windows and sessions are kept.
        history_retention: how long old versions are kept in a versioned store.

    Raises:
        TopologyError: a name is not legal, or name, kind and supplier contradict each other.

    Example:
        >>> Materialized("counts", kind="in_memory", logging={"retention.ms": "86400000"}).name
        'counts'
    """

    name: str | None = None
    _: KW_ONLY
    kind: Literal["rocksdb", "in_memory", "versioned"] | None = None
    supplier: KeyValueStoreSupplier | None = None
    key: Serde[Any] | None = None
    value: Serde[Any] | None = None
    caching: bool | None = None
    logging: bool | Mapping[str, str] = True
    retention: timedelta | None = None
    history_retention: timedelta | None = None

    def __post_init__(self) -> None:
        if self.store_name is not None:
            checked_name(self.store_name)
        if self.supplier is not None and (self.name is not None or self.kind is not None):
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


#: Whatever `store=` takes.
StoreChoice = str | Materialized | KeyValueStoreSupplier | None


def materialized(store: StoreChoice) -> Materialized:
    """What `store=` means: a name, a supplier, or nothing in particular."""
    if store is None:
        return Materialized()
    if isinstance(store, Materialized):
        return store
    if isinstance(store, str):
        return Materialized(store)
    return Materialized(supplier=store)


def key_value_builder(
    choice: Materialized,
    names: Names,
    prefix: str,
    *,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
) -> KeyValueStoreBuilder:
    """The builder of the key-value store of a table.

    Args:
        choice: what the user wants.
        names: the counter; it gives a name if the user did not.
        prefix: the beginning of a generated name, for example `KSTREAM-REDUCE-`.
        key_serde: of the keys, unless the user chose one.
        value_serde: of the values, unless the user chose one.

    Raises:
        TopologyError: the user asked for what a key-value store cannot be.
    """
    if choice.kind == "versioned" or choice.history_retention is not None:
        _refuse("Versioned stores are not supported yet. Leave out kind='versioned'.")
    if choice.retention is not None:
        _refuse("A retention is for windows and sessions only; this store keeps its latest values.")
    name, supplier, logging = choice.store_name, choice.supplier, choice.logging
    return KeyValueStoreBuilder(
        name=names.store(prefix) if name is None else name,
        kind=choice.kind if supplier is None else supplier.kind,
        key_serde=key_serde if choice.key is None else choice.key,
        value_serde=value_serde if choice.value is None else choice.value,
        timestamped=True,
        caching=choice.caching is not False,
        logging=logging is not False,
        topic_config={} if isinstance(logging, bool) else dict(logging),
    )


def _refuse(why: str) -> NoReturn:
    raise TopologyError(why, declared_at=call_site())
