"""What a case of bad input is, and how one is tried.

What is wrong must be written down, so that the package is held here as `Any`: for the type checker
most cases would be mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from support.running.lone_run import counting_dropped

import millstream
import millstream.serdes
from millstream.config import StreamsConfig
from millstream.runtime.check import check_topology
from millstream.testing import TopologyTestDriver

ms: Any = millstream
serdes: Any = millstream.serdes
LETTERS = "letters"


@dataclass(frozen=True)
class Refused:
    """An error.

    Args:
        error: its type.
        text: what its message must say; parts of it, each of which must be there.
    """

    error: type[BaseException]
    text: str | Sequence[str]


@dataclass(frozen=True)
class Dropped:
    """Records are left out, logged and counted.

    Args:
        count: how many are.
        out: what comes out of the others.
    """

    count: int
    out: Any = ()


@dataclass(frozen=True)
class Letter:
    """Records go to the dead-letter queue, and are counted as dropped.

    Args:
        count: how many do.
        out: what comes out of the others.
    """

    count: int
    out: Any = ()


@dataclass(frozen=True)
class Accepted:
    """It is no mistake.

    Args:
        out: what comes of it.
    """

    out: Any = None


@dataclass(frozen=True)
class Filtered:
    """Records are left out as by a filter: neither logged nor counted. Follows Kafka Streams.

    Args:
        out: what comes out of the others.
    """

    out: Any = ()


Outcome = Refused | Dropped | Letter | Accepted | Filtered


@dataclass(frozen=True)
class Case:
    """One kind of bad input.

    Args:
        id: a short name, of its family's own.
        what: what is bad, in words for a page of the docs.
        do: tries it; takes a broker where only Kafka itself can tell.
        outcome: what becomes of it.
    """

    id: str
    what: str
    do: Callable[..., Any]
    outcome: Outcome


@dataclass(frozen=True)
class Family:
    """Kinds of bad input that have something in common.

    Args:
        title: of its part of the page.
        about: a sentence for the page.
        cases: the cases.
    """

    title: str
    about: str
    cases: Sequence[Case]


@dataclass(frozen=True)
class In:
    """A record that goes in, as bytes."""

    value: Any = b"v"
    key: Any = b"k"
    timestamp: Any = 0
    headers: Any = ()
    topic: str = "in"


@dataclass(frozen=True)
class Seen:
    """What came of records: outputs, how many were dropped, how many letters."""

    out: Sequence[Any]
    dropped: int
    letters: int


def config(**settings: Any) -> StreamsConfig:
    """Settings of an application."""
    return StreamsConfig(
        **{"application_id": "app", "bootstrap_servers": "not-used:9092", **settings}
    )


def started(build: Callable[[Any], object], **settings: Any) -> Callable[[], object]:
    """An application, as far as it is checked before it starts."""

    def do() -> object:
        builder = ms.StreamsBuilder()
        build(builder)
        check_topology(builder.build(), config(**settings))
        return None

    return do


def through(build: Callable[[Any], object], *records: In, **settings: Any) -> Callable[[], Seen]:
    """Records through a topology of the DSL; what arrives in `out`, as texts."""

    def do() -> Seen:
        builder = ms.StreamsBuilder()
        build(builder)
        return seen(builder.build(), records, settings)

    return do


def seen(topology: Any, records: Sequence[In], settings: dict[str, Any]) -> Seen:
    """What comes of records."""
    text, raw = serdes.STRING, serdes.BYTES
    with (
        counting_dropped() as dropped,
        TopologyTestDriver(topology, config(**settings), initial_wall_clock_ms=0) as driver,
    ):
        for record in records:
            topic: Any = driver.create_input_topic(record.topic, key=raw, value=raw)
            topic.pipe_input(
                record.key, record.value, timestamp=record.timestamp, headers=record.headers
            )
        out = driver.create_output_topic("out", key=text, value=text).read_key_values()
        letters = driver.create_output_topic(LETTERS, key=raw, value=raw).read_values()
    return Seen(out, sum(dropped), len(letters))
