"""Data clients on the shared broker, and members on a broker of the module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from support.broker.data_clients import Clients
from support.broker.group_members import Loop, Start
from support.broker.topics import unique
from support.strictness import needed_speedups

from millstream.testing import EmbeddedKafka


@pytest.fixture(params=["messages", "columns"])
def speedups(request: pytest.FixtureRequest) -> bool:
    """The implementation that reads and writes records."""
    if request.param == "columns":
        needed_speedups()
        return True
    return False


@pytest.fixture
def clients(kafka: EmbeddedKafka, speedups: bool) -> Iterator[Clients]:
    made = Clients(kafka.bootstrap_servers, speedups)
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


@pytest.fixture
def member_settings() -> Mapping[str, Any]:
    """The default settings of members; modules may override this fixture."""
    return {}


@pytest.fixture
def start(broker: EmbeddedKafka, member_settings: Mapping[str, Any]) -> Iterator[Start]:
    """Start members in processing loops, and close them after the test."""
    loops: list[Loop] = []

    def start_loop(group: str, topics: list[str] | None, assignor: Any, **settings: Any) -> Loop:
        servers = settings.pop("servers", broker.bootstrap_servers)
        name = settings.pop("name", f"m{len(loops)}")
        loop = Loop(servers, group, topics, assignor, name=name, **{**member_settings, **settings})
        loops.append(loop)
        return loop.start()

    yield start_loop
    for loop in loops:
        loop.close()


@pytest.fixture
def topic(broker: EmbeddedKafka) -> str:
    """A topic of four partitions."""
    name = unique("in")
    broker.create_topic(name, partitions=4)
    return name
