"""The topics that an application keeps for itself: repartition topics and changelogs.

Their names go undecorated inside a topology; on the cluster each is `<application.id>-<name>`.
The configs are Kafka Streams' defaults, then the application's `topic.*` settings, then what the
user asked for a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_REPARTITION_CONFIG = {
    # Records are deleted one by one as soon as they are committed, never by age.
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    # Small segments, so that deleting records frees the disk soon.
    "segment.bytes": str(50 * 1024 * 1024),
    "message.timestamp.type": "CreateTime",
}


def decorated(name: str, application_id: str) -> str:
    """The name that an internal topic has on the cluster."""
    return f"{application_id}-{name}"


@dataclass(frozen=True, slots=True)
class RepartitionTopic:
    """A topic through which records pass to reach the task that owns their new key.

    Args:
        name: undecorated, for example `Counts-repartition`.
        partitions: how many the user asked for; None leaves it to the assignor.
        generated: whether the name has a generated number in it.
        times_in_headers: whether what writes it may put a record's time into a header, which is
            taken off where the topic is read.
    """

    name: str
    partitions: int | None = None
    generated: bool = False
    times_in_headers: bool = False

    def config(self, settings: Mapping[str, str] | None = None) -> dict[str, str]:
        """The topic's config.

        Args:
            settings: the application's `topic.*` settings, without that prefix.
        """
        return {**_REPARTITION_CONFIG, **(settings or {})}


@dataclass(frozen=True, slots=True)
class ChangelogTopic:
    """The log of a store's changes, from which the store is restored.

    Args:
        name: undecorated, for example `Counts-changelog`.
        store: the store's name.
        defaults: the topic's config where neither the application nor the store says otherwise.
        overrides: what the user asked for this store.
    """

    name: str
    store: str
    defaults: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)

    def config(self, settings: Mapping[str, str] | None = None) -> dict[str, str]:
        """The topic's config.

        Args:
            settings: the application's `topic.*` settings, without that prefix.
        """
        return {**self.defaults, **(settings or {}), **self.overrides}


def changelog_name(store: str) -> str:
    """The undecorated name of a store's changelog."""
    return f"{store}-changelog"
