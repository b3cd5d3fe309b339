"""The broker of a benchmark, and its topics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient


class Cluster:
    """A broker, and the prefix of this benchmark's topics."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.servers = bootstrap_servers
        self.prefix = f"bench-{time.time_ns() // 1_000_000:x}"
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})

    def delete_topics(self, prefix: str) -> None:
        """Delete topics by prefix, including the internal topics of applications."""
        names = [
            name for name in self.admin.list_topics(timeout=30).topics if name.startswith(prefix)
        ]
        for deleted in (self.admin.delete_topics(names) if names else {}).values():
            deleted.result(30)

    def close(self) -> None:
        """Delete all topics of this benchmark."""
        self.delete_topics(f"{self.prefix}-")
        # Otherwise the client would report a lost connection when the broker stops.
        del self.admin


@contextmanager
def cluster(given: str | None) -> Iterator[Cluster]:
    """Yield the given broker, or a new one that runs until the context ends."""
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
