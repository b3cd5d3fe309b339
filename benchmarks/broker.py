"""The broker of a benchmark, and the topics that are left on it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient


class Cluster:
    """A broker, and the names of this bench's topics on it.

    Args:
        bootstrap_servers: of the broker.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self.servers = bootstrap_servers
        self.prefix = f"bench-{time.time_ns() // 1_000_000:x}"
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})

    def delete_topics(self, prefix: str) -> None:
        """Deletes topics by the start of their names, so an application's internal ones too."""
        names = [
            name for name in self.admin.list_topics(timeout=30).topics if name.startswith(prefix)
        ]
        for deleted in (self.admin.delete_topics(names) if names else {}).values():
            deleted.result(30)

    def close(self) -> None:
        """Deletes every topic that this bench has left on the broker."""
        self.delete_topics(f"{self.prefix}-")
        # Else it would report the broker's end as a lost connection.
        del self.admin


@contextmanager
def cluster(given: str | None) -> Iterator[Cluster]:
    """A given broker, or one of our own for as long as it is used."""
    if given is not None:
        found = Cluster(given)
        try:
            yield found
        finally:
            found.close()
        return
    from millstream.testing import EmbeddedKafka

    with EmbeddedKafka() as kafka:
        found = Cluster(kafka.bootstrap_servers)
        try:
            yield found
        finally:
            found.close()
