"""Kafka Streams' optimizations of a topology, by their names in `topology.optimization`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from millstream.config_fields import did_you_mean
from millstream.errors import ConfigError

#: A table read from a topic has no changelog: it is restored from the topic itself.
REUSE_KTABLE_SOURCE_TOPICS: Final = "reuse.ktable.source.topics"
#: One repartition topic where several operations would each have one with the same records.
MERGE_REPARTITION_TOPICS: Final = "merge.repartition.topics"
#: A stream joined with itself is kept in one store instead of two.
SINGLE_STORE_SELF_JOIN: Final = "single.store.self.join"

ALL_OPTIMIZATIONS: Final = frozenset(
    (REUSE_KTABLE_SOURCE_TOPICS, MERGE_REPARTITION_TOPICS, SINGLE_STORE_SELF_JOIN)
)

_ALONE = ("none", "all")
_NAMES = (*_ALONE, *sorted(ALL_OPTIMIZATIONS))


def optimizations(choice: bool | str | Iterable[str]) -> frozenset[str]:
    """The optimizations that a setting stands for.

    Args:
        choice: True or `"all"`, False or `"none"`, or names, separated by commas or as a list.

    Raises:
        ConfigError: there is no optimization of that name, or `all` or `none` is not alone.

    Example:
        >>> sorted(optimizations("single.store.self.join, merge.repartition.topics"))
        ['merge.repartition.topics', 'single.store.self.join']
    """
    if isinstance(choice, bool):
        return ALL_OPTIMIZATIONS if choice else frozenset()
    names = choice.split(",") if isinstance(choice, str) else list(choice)
    chosen = [name.strip() if isinstance(name, str) else name for name in names]
    for name in chosen:
        if name not in _NAMES:
            raise ConfigError(
                f"There is no optimization {name!r} of topologies. Choose none, all, or a list of "
                f"{', '.join(_NAMES[2:])}.{did_you_mean(str(name), _NAMES)}"
            )
    if len(chosen) > 1 and not ALL_OPTIMIZATIONS.issuperset(chosen):
        raise ConfigError(
            f"The optimizations {', '.join(chosen)!r} contradict each other: none and all stand "
            "alone. Choose one of the two, or a list of names."
        )
    if chosen == ["all"]:
        return ALL_OPTIMIZATIONS
    return frozenset(chosen) - {"none"}
