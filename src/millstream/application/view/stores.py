"""The stores of a topology, for whoever lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from millstream.config import StreamsConfig
from millstream.state.builders.buffers import (
    GraceBufferBuilder,
    OuterJoinStoreBuilder,
    SuppressBufferBuilder,
)
from millstream.state.builders.store_builder import SerdedBuilder, StoreBuilder
from millstream.state.builders.versioned import VersionedStoreBuilder
from millstream.state.builders.windows import SessionStoreBuilder, WindowStoreBuilder
from millstream.topology.physical.topology import Topology

#: What may be asked of it. A `buffer` is of the engine, and nobody asks it anything.
StoreForm = Literal["key-value", "window", "session", "versioned", "buffer"]


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What is known of a store before anything runs.

    Args:
        name: the store's.
        form: what may be asked of it.
        timestamped: whether values come with the times of their records.
        persistent: whether it lies on disk.
        cached: whether changes wait in the record cache for a commit.
        is_global: whether each instance has all of it.
        changelog: the topic that it is restored from; None if it is not.
        subtopology: the number of the one that writes it; None for a global store.
        key: what its keys are.
        value: what its values are.
        window_ms: of a window store: the size of windows.
        retention_ms: of a window, session or versioned store: for how long it keeps things.
    """

    name: str
    form: StoreForm
    timestamped: bool
    persistent: bool
    cached: bool
    is_global: bool
    changelog: str | None
    subtopology: int | None
    key: str | None
    value: str | None
    window_ms: int | None = None
    retention_ms: int | None = None


def stores_of(topology: Topology, config: StreamsConfig) -> list[StoreFacts]:
    """All stores of a topology, by name.

    Args:
        topology: the topology.
        config: fills in what builders leave open.
    """
    found = []
    for sub in topology._subtopologies():
        for name, builder in sub.stores.items():
            log = sub.changelogs.get(name)
            changelog = None if log is None else sub.decorate(log, config.application_id)
            found.append(_facts(builder, config, sub.id, changelog))
    found += [
        _facts(nodes.store_builder, config, None, nodes.topic)
        for nodes in topology.global_stores.values()
    ]
    return sorted(found, key=lambda each: each.name)


def _facts(
    builder: StoreBuilder, config: StreamsConfig, subtopology: int | None, changelog: str | None
) -> StoreFacts:
    resolved = builder.resolved(config)
    kept: Mapping[str, Any] = resolved.__dict__ if hasattr(resolved, "__dict__") else {}
    return StoreFacts(
        name=builder.name,
        form=_form(resolved),
        timestamped=bool(kept.get("timestamped", False)),
        persistent=resolved.persistent,
        cached=bool(kept.get("caching", False)),
        is_global=subtopology is None,
        changelog=changelog,
        subtopology=subtopology,
        key=_serde(resolved, "key_serde"),
        value=_serde(resolved, "value_serde"),
        window_ms=kept.get("window_size_ms"),
        retention_ms=kept.get("retention_ms", kept.get("history_ms")),
    )


def _form(builder: StoreBuilder) -> StoreForm:
    match builder:
        case WindowStoreBuilder():
            return "window"
        case SessionStoreBuilder():
            return "session"
        case VersionedStoreBuilder():
            return "versioned"
        case SuppressBufferBuilder() | GraceBufferBuilder() | OuterJoinStoreBuilder():
            return "buffer"
        case _:
            return "key-value"


def _serde(builder: StoreBuilder, which: str) -> str | None:
    serde = getattr(builder, which, None) if isinstance(builder, SerdedBuilder) else None
    return None if serde is None else repr(serde)
