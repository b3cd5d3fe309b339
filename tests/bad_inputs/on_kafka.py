"""Input that only Kafka rejects or accepts, for `tests/integration/runtime/test_bad_input.py`."""

from __future__ import annotations

import tempfile
from typing import Any

from support.broker.topics import fill, read_all, unique
from support.running.thread_run import run_to_end

from bad_inputs.case import Accepted, Case, Dropped, Family, Outcome, Raises, Result, ms
from bad_inputs.headers import HeadersAsValue
from bad_inputs.nulls import NEAR, TEXT, both
from millstream.errors import (
    CopartitionError,
    MissingSourceTopicError,
    ProductionError,
    UnknownTopicError,
)
from millstream.testing import EmbeddedKafka


class TestTopics:
    """The topics of an application: `in`, and `out` with topic settings."""

    def __init__(self, kafka: EmbeddedKafka, partitions: int = 1, **out: str) -> None:
        self.kafka = kafka
        self.name = unique("bad")
        self.source, self.out = f"{self.name}-in", f"{self.name}-out"
        kafka.create_topic(self.source, partitions=partitions)
        settings: dict[str, str | int | bool] = {
            name.replace("_", "."): value for name, value in out.items()
        }
        kafka.create_topic(self.out, config=settings)

    def config(self, **settings: Any) -> Any:
        return ms.StreamsConfig(
            application_id=self.name,
            bootstrap_servers=self.kafka.bootstrap_servers,
            commit_interval_ms=50,
            **settings,
        )

    def run(self, build: Any, *values: bytes, **settings: Any) -> Result:
        """Process values and return the result. Raises the error of the thread."""
        builder = ms.StreamsBuilder()
        build(builder, self.source, self.out)
        servers = self.kafka.bootstrap_servers
        fill(servers, self.source, [(b"k", value) for value in values or (b"v",)])
        with tempfile.TemporaryDirectory() as folder:
            config = self.config(state_dir=folder, **settings)
            run = run_to_end(builder.build(), config, [self.source])
        if run.outcome.error is not None:
            raise run.outcome.error
        found = [tuple((x or b"").decode() for x in pair) for pair in read_all(servers, self.out)]
        return Result(found, run.dropped, 0)

    def start(self, build: Any, **settings: Any) -> None:
        """Start the application, which checks the cluster first."""
        builder = ms.StreamsBuilder()
        build(builder, self.source, self.out)
        with tempfile.TemporaryDirectory() as folder:
            config = self.config(state_dir=folder, **settings)
            with ms.KafkaStreams(builder.build(), config):
                raise AssertionError("the application started")


def mapped(function: Any) -> Any:
    """Write the results of a function."""

    def build(builder: Any, source: str, out: str) -> None:
        builder.stream(source, **TEXT).map_values(function).to(out, **TEXT)

    return build


def case(
    id: str,
    description: str,
    build: Any,
    outcome: Outcome,
    *,
    starts: bool = False,
    **settings: Any,
) -> Case:
    """Create a case with a topology from `in` to `out`."""
    topic = {name: settings.pop(name) for name in list(settings) if name.startswith("m")}

    def run(kafka: EmbeddedKafka) -> Any:
        topics = TestTopics(kafka, **topic)
        return (topics.start if starts else topics.run)(build, **settings)

    return Case(id, description, run, outcome)


class SetUnusualHeaders(ms.Processor):  # type: ignore[misc]
    """Forwards each record with unusual headers."""

    def process(self, record: Any) -> None:
        unusual = [("", b"1"), ("a", None), ("a", b"\xff")]
        self.context.forward(record.with_headers(unusual))


class SetInvalidHeader(ms.Processor):  # type: ignore[misc]
    """Forwards a record with an invalid header, bypassing the check."""

    def process(self, record: Any) -> None:
        wrong = (("a", 5),)
        self.context.forward(ms.Record("k", "v", 0, wrong))


class SetOldTimestamp(ms.Processor):  # type: ignore[misc]
    """Forwards each record with a timestamp in the distant past."""

    def process(self, record: Any) -> None:
        self.context.forward(record.with_timestamp(1_000))


def processed(processor: Any) -> Any:
    def build(builder: Any, source: str, out: str) -> None:
        builder.stream(source, **TEXT).process(processor).to(out, **TEXT)

    return build


def headers_as_values(builder: Any, source: str, out: str) -> None:
    marked = (
        builder.stream(source, **TEXT).process(SetUnusualHeaders).repartition(name="again", **TEXT)
    )
    marked.process(HeadersAsValue).to(out, **TEXT)


def nowhere(builder: Any, source: str, out: str) -> None:
    builder.stream(source, **TEXT).to(f"{out}-missing", **TEXT)


def missing_source(builder: Any, source: str, out: str) -> None:
    builder.stream([source, f"{source}-missing"], **TEXT).to(out, **TEXT)


def counts_differ(builder: Any, source: str, out: str) -> None:
    left = builder.stream(source, **TEXT)
    right = left.map_values(str).repartition(partitions=2, name="two", **TEXT)
    left.join(right, both, NEAR).to(out, **TEXT)


def return_continue(context: Any, record: Any, error: Any) -> Any:
    return ms.HandlerResponse.CONTINUE


CONTINUES: dict[str, Any] = {"production_exception_handler": return_continue}
LARGE = mapped(lambda value: "x" * 2_000_000)
FOR_TOPIC = mapped(lambda value: "x" * 5_000)
SMALL_TOPIC: dict[str, Any] = {"max_message_bytes": "1000"}
LIMITED: dict[str, Any] = {"message_timestamp_before_max_ms": "3600000"}
NO_COMPRESSION: dict[str, Any] = {"producer": {"compression.type": "none"}}

FAMILY = Family(
    "Kafka",
    "Tested with a broker. The production handler is called for records that Kafka rejects.",
    [
        case(
            "too-large",
            "a record larger than max.request.size",
            LARGE,
            Raises(ProductionError, ["was rejected", "max.request.size", "node KSTREAM-SINK"]),
        ),
        case(
            "too-large-continue",
            "the same, with a handler that returns CONTINUE",
            LARGE,
            Dropped(1, []),
            **CONTINUES,
        ),
        case(
            "almost",
            "a record of 900,000 bytes",
            mapped(lambda value: "x" * 900_000),
            Accepted([("k", "x" * 900_000)]),
        ),
        case(
            "topic",
            "a record larger than the topic's max.message.bytes",
            FOR_TOPIC,
            Raises(ProductionError, "max.message.bytes"),
            **SMALL_TOPIC,
            **NO_COMPRESSION,
        ),
        case(
            "topic-continue",
            "the same, with a handler that returns CONTINUE",
            FOR_TOPIC,
            Dropped(1, []),
            **SMALL_TOPIC,
            **NO_COMPRESSION,
            **CONTINUES,
        ),
        case(
            "old",
            "a record older than the topic allows",
            processed(SetOldTimestamp),
            Raises(ProductionError, "timestamp"),
            **LIMITED,
        ),
        case(
            "old-continue",
            "the same, with a handler that returns CONTINUE",
            processed(SetOldTimestamp),
            Dropped(1, []),
            **LIMITED,
            **CONTINUES,
        ),
        case(
            "headers",
            "headers with an empty name, no value, a duplicate name, and a value that is not UTF-8",
            headers_as_values,
            Accepted([("k", "[('', b'1'), ('a', None), ('a', b'\\xff')]")]),
        ),
        case(
            "header",
            "a number as a header value, which is only detected when the record is sent",
            processed(SetInvalidHeader),
            Raises(ProductionError, ["the client rejected it", "Headers must be"]),
        ),
        case(
            "no-sink",
            "an output topic that does not exist",
            nowhere,
            Raises(UnknownTopicError, "missing"),
            starts=True,
        ),
        case(
            "no-source",
            "an input topic that does not exist",
            missing_source,
            Raises(MissingSourceTopicError, "missing"),
            starts=True,
        ),
        case(
            "no-queue",
            "a dead-letter queue that does not exist",
            mapped(str),
            Raises(UnknownTopicError, "letters"),
            starts=True,
            errors_dead_letter_queue_topic_name="no-letters",
        ),
        case(
            "counts",
            "a join of topics with 1 and 2 partitions",
            counts_differ,
            Raises(CopartitionError, ["has 1", "-two-repartition' 2"]),
            starts=True,
        ),
    ],
)
