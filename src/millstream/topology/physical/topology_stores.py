"""The stores of a topology: what may be added as one, and where global ones are numbered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from millstream.errors import TopologyError
from millstream.state.builders.store_builder import StoreBuilder
from millstream.topology.arguments import wrong_type
from millstream.topology.physical.nodes import GlobalStoreNodes, Node, ProcessorNode


def check_store_builder(builder: object) -> None:
    """Refuse what is no store to be, for example a supplier.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(builder, StoreBuilder):
        raise wrong_type(
            "A store is added as a builder, which knows the serdes as well: "
            f"Stores.key_value_builder(supplier, STRING, LONG) for example. This is {builder!r}."
        )


def taken_store(name: str, nodes: Iterable[Node], site: str) -> TopologyError:
    """The error that a store's name is taken, with the node that uses the other store.

    Args:
        name: of both stores.
        nodes: those of the topology.
        site: file and line of the user's program that wants the second one.
    """
    users = [node for node in nodes if isinstance(node, ProcessorNode) and name in node.stores]
    of_whom = ""
    if users:
        where = f", declared at {users[0].declared_at}" if users[0].declared_at else ""
        of_whom = f", that of node {users[0].name!r}{where}"
    return TopologyError(
        f"There is another store called {name!r} already{of_whom}. Give each store its own name, "
        "or add one and the same builder to share a store.",
        declared_at=site,
    )


def unlogged(builder: StoreBuilder) -> StoreBuilder:
    """A builder of the same store without a changelog and without the record cache."""
    changed: Any = builder
    changed = changed.with_logging(False)
    if getattr(changed, "caching", False):
        changed = changed.with_caching(False)
    return cast(StoreBuilder, changed)


def numbered(
    groups: list[tuple[Node, ...]],
    nodes: Mapping[str, Node],
    global_stores: Mapping[str, GlobalStoreNodes],
) -> list[tuple[Node, ...] | GlobalStoreNodes]:
    """Sub-topologies and global stores, each at the place that is its number.

    Global stores take numbers, too: follows Kafka Streams.

    Args:
        groups: the nodes of each sub-topology, in the order of their first nodes.
        nodes: all nodes of the topology by name, in the order of adding.
        global_stores: by name, in the order of adding.
    """
    positions = {name: position for position, name in enumerate(nodes)}
    placed: list[tuple[tuple[int, int], tuple[Node, ...] | GlobalStoreNodes]] = [
        ((positions[group[0].name], 1), group) for group in groups
    ]
    placed += [((store.position, 0), store) for store in global_stores.values()]
    return [entry for _, entry in sorted(placed, key=lambda place: place[0])]
