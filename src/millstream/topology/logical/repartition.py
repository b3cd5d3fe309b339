"""The node through which records with a changed key go, and its names."""

from __future__ import annotations

import re
from typing import Any, Final

from millstream.serdes import Serde
from millstream.topology.arguments import checked_partitioner
from millstream.topology.logical.graph_nodes import RepartitionGraphNode
from millstream.topology.naming import Names
from millstream.topology.physical.internal_topics import RepartitionTopic
from millstream.topology.physical.nodes import Partitioner

_SUFFIX: Final = "-repartition"
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")


def repartition_node(
    names: Names,
    base: str,
    *,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
    declared_at: str,
    generated: bool,
    partitions: int | None = None,
    partitioner: Partitioner | None = None,
    optimizable: bool = True,
) -> RepartitionGraphNode:
    """A repartition node whose topic is called `<base>-repartition`.

    Three numbers are used up, for sink, filter and source. They only show where the base name was
    generated as well: follows Kafka Streams, whose topics and nodes must keep their names.

    Args:
        names: the counter.
        base: the user's name for the operation, or that of the store or stream it is about.
        key_serde: of the topic's keys.
        value_serde: of the topic's values.
        declared_at: file and line of the user's program.
        generated: whether the base name was generated.
        partitions: how many the topic shall have; None leaves it to the assignor.
        partitioner: chosen by the user.
        optimizable: whether it may be merged with others.
    """
    checked_partitioner("repartition", partitioner)
    topic = base if base.endswith(_SUFFIX) else base + _SUFFIX
    sink = names.processor("KSTREAM-SINK-")
    null_filter = names.processor("KSTREAM-FILTER-")
    source = names.processor("KSTREAM-SOURCE-")
    if not _GENERATED.fullmatch(base):
        sink, null_filter, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
    return RepartitionGraphNode(
        name=source,
        declared_at=declared_at,
        topic=RepartitionTopic(topic, partitions, generated),
        filter_name=null_filter,
        sink_name=sink,
        key_serde=key_serde,
        value_serde=value_serde,
        partitioner=partitioner,
        optimizable=optimizable,
    )
