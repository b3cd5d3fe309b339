"""Internal topics: repartition topics and changelogs.

Within a topology, their names are undecorated; on the cluster they are `<application.id>-<name>`.
Their configs consist of Kafka Streams' defaults, overridden by the application's `topic.*`
settings, which are overridden by the user's config for a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_REPARTITION_CONFIG = {
    # Records are deleted after they have been committed, never by age.
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    # With small segments, deleting records frees disk space sooner.
    "segment.bytes": str(50 * 1024 * 1024),
    "message.timestamp.type": "CreateTime",
}


def decorated(name: str, application_id: str) -> str:
    """Return the name of an internal topic on the cluster."""
    return f"{application_id}-{name}"


@dataclass(frozen=True, slots=True)
class RepartitionTopic:
    """A topic through which records reach the task that owns their new key."""

    name: str
    #: The partition count that the user set; None to let the assignor choose.
    partitions: int | None = None
    #: Whether the name contains a generated number.
    generated: bool = False
    #: Whether a record may have its timestamp in a header, which is removed when the topic is read.
    times_in_headers: bool = False

    def config(self, settings: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the config of the topic.

        Args:
            settings: the application's `topic.*` settings, without this prefix.
        """
        return {**_REPARTITION_CONFIG, **(settings or {})}


@dataclass(frozen=True, slots=True)
class ChangelogTopic:
    """The log of a store's changes, from which the store is restored."""

    name: str
    store: str
    defaults: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)

    def config(self, settings: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the config of the topic; see `RepartitionTopic.config`."""
        return {**self.defaults, **(settings or {}), **self.overrides}


def changelog_name(store: str) -> str:
    """Return the undecorated name of a store's changelog."""
    return f"{store}-changelog"
