"""Cases of bad input, and helpers that run them.

The package is imported as `Any`, since the type checker would report most cases as errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from support.running.thread_run import counting_dropped

import millstream
import millstream.serdes
from millstream.config.streams_config import StreamsConfig
from millstream.errors import StreamsError
from millstream.runtime.start.topology_checks import check_topology
from millstream.testing import TopologyTestDriver

ms: Any = millstream
serdes: Any = millstream.serdes
LETTERS = "letters"


@dataclass(frozen=True)
class Raises:
    """An error is raised.

    Args:
        error: its type.
        text: a part of its message, or several parts that must all be present.
    """

    error: type[BaseException]
    text: str | Sequence[str]


@dataclass(frozen=True)
class Dropped:
    """Records are dropped: logged and counted.

    Args:
        count: the number of dropped records.
        out: the output of the other records.
    """

    count: int
    out: Any = ()


@dataclass(frozen=True)
class DeadLettered:
    """Records are written to the dead-letter queue, and counted as dropped.

    Args:
        count: the number of these records.
        out: the output of the other records.
    """

    count: int
    out: Any = ()


@dataclass(frozen=True)
class Accepted:
    """The input is valid.

    Args:
        out: the output.
    """

    out: Any = None


@dataclass(frozen=True)
class Filtered:
    """Records are filtered out: neither logged nor counted. Follows Kafka Streams.

    Args:
        out: the output of the other records.
    """

    out: Any = ()


Outcome = Raises | Dropped | DeadLettered | Accepted | Filtered


@dataclass(frozen=True)
class Case:
    """One kind of bad input.

    Args:
        id: a short name, unique in its family.
        description: of the input, for a page of the docs.
        run: executes the case; takes a broker if only Kafka can reject the input.
        outcome: the expected outcome.
    """

    id: str
    description: str
    run: Callable[..., Any]
    outcome: Outcome


@dataclass(frozen=True)
class Family:
    """Related kinds of bad input.

    Args:
        title: of its section of the page.
        about: a sentence for the page.
        cases: the cases.
    """

    title: str
    about: str
    cases: Sequence[Case]


@dataclass(frozen=True)
class Input:
    """A serialized input record."""

    value: Any = b"v"
    key: Any = b"k"
    timestamp: Any = 0
    headers: Any = ()
    topic: str = "in"


@dataclass(frozen=True)
class Result:
    """The results: the output, and the numbers of dropped records and of dead letters."""

    out: Sequence[Any]
    dropped: int
    letters: int


def config(**settings: Any) -> StreamsConfig:
    """Create the settings of an application."""
    return StreamsConfig(
        **{"application_id": "app", "bootstrap_servers": "not-used:9092", **settings}
    )


def check_start(build: Callable[[Any], object], **settings: Any) -> Callable[[], object]:
    """Build an application and run the checks before its start."""

    def run() -> object:
        builder = ms.StreamsBuilder()
        build(builder)
        check_topology(builder.build(), config(**settings))
        return None

    return run


def process(
    build: Callable[[Any], object], *records: Input, **settings: Any
) -> Callable[[], Result]:
    """Process records with a DSL topology; the result contains the strings in `out`."""

    def run() -> Result:
        builder = ms.StreamsBuilder()
        build(builder)
        return process_records(builder.build(), records, settings)

    return run


def process_records(topology: Any, records: Sequence[Input], settings: dict[str, Any]) -> Result:
    """Process records with a topology."""
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
    return Result(out, sum(dropped), len(letters))


def differences(case: Case, *arguments: object) -> str:
    """Describe the difference from the expected outcome; empty if there is none.

    Args:
        case: the case.
        arguments: a broker, if the case needs one.
    """
    expected = case.outcome
    try:
        found = case.run(*arguments)
    except (Exception, SystemExit) as error:
        if not isinstance(expected, Raises):
            return f"raised {type(error).__name__}: {error}"
        return _error_difference(expected, error)
    if isinstance(expected, Raises):
        return f"raised no error, but returned {found!r}"
    if isinstance(found, Result):
        count = expected.count if isinstance(expected, Dropped | DeadLettered) else 0
        expected_result = Result(
            expected.out, count, count if isinstance(expected, DeadLettered) else 0
        )
        return (
            ""
            if list(found.out) == list(expected_result.out or ())
            and (
                found.dropped,
                found.letters,
            )
            == (expected_result.dropped, expected_result.letters)
            else f"{found!r} is not {expected_result!r}"
        )
    return "" if found == expected.out else f"{found!r} is not {expected.out!r}"


def _error_difference(expected: Raises, error: BaseException) -> str:
    message = str(error)
    parts = [expected.text] if isinstance(expected.text, str) else expected.text
    missing = [part for part in parts if part not in message]
    if type(error) is not expected.error:
        return f"raised {type(error).__name__}, not {expected.error.__name__}: {error}"
    if missing:
        return f"the message lacks {missing}: {error}"
    # Messages of Millstream's errors are full sentences.
    if isinstance(error, StreamsError) and not error.message.rstrip().endswith((".", "?", ")")):
        return f"the message is not a sentence: {error.message!r}"
    return ""
