"""Data clients on the broker that tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.broker.data_clients import Clients
from support.broker.topics import unique

from millstream.testing import EmbeddedKafka


@pytest.fixture
def clients(kafka: EmbeddedKafka) -> Iterator[Clients]:
    made = Clients(kafka.bootstrap_servers)
    yield made
    made.close()


@pytest.fixture
def make_topic(kafka: EmbeddedKafka) -> Callable[..., str]:
    def make(partitions: int = 1, **config: str) -> str:
        name = unique("data")
        settings = {key.replace("_", "."): value for key, value in config.items()}
        kafka.create_topic(name, partitions=partitions, config=settings)
        return name

    return make
