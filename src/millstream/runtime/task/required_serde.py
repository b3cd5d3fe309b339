"""Serdes that the user need not give where the application has a default."""

from __future__ import annotations

from typing import Any, Literal

from millstream.config import StreamsConfig
from millstream.errors import ConfigError
from millstream.serdes import Serde
from millstream.serdes._wrapper import WrapperSerde
from millstream.topology.physical.nodes import SinkNode, SourceNode


def required_serde(
    node: SourceNode | SinkNode, what: Literal["key", "value"], config: StreamsConfig
) -> Serde[Any]:
    """The serde of a source or sink: its own, or the configured default.

    Args:
        node: the source or sink.
        what: which of its two serdes.
        config: has the defaults.

    Raises:
        ConfigError: there is neither.
    """
    if what == "key":
        serde, default = node.key_serde, config.default_key_serde
    else:
        serde, default = node.value_serde, config.default_value_serde
    if default is not None and not isinstance(default, Serde):
        raise ConfigError(
            f"default_{what}_serde is {default!r}, but must be a Serde, such as "
            "millstream.serdes.STRING."
        )
    found = serde or default
    if isinstance(found, WrapperSerde) and found.inner is None:
        found = None if default is None else found.around(default)
    if found is None:
        where = f" The node was declared at {node.declared_at}." if node.declared_at else ""
        raise ConfigError(
            f"There is no {what} serde: none is given where the records are read, written or "
            f"repartitioned, and default_{what}_serde is not set. Give {what}=... there (for "
            f"example {what}=millstream.serdes.STRING), or set the default.{where}",
            node=node.name,
            topic=_topic(node),
        )
    return found


def _topic(node: SourceNode | SinkNode) -> str | None:
    if isinstance(node, SourceNode):
        return node.topics[0] if node.topics else None
    return node.topic if isinstance(node.topic, str) else None
