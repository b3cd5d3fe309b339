"""Settings that are wrong."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from bad_inputs.case import Accepted, Case, Family, Outcome, Refused, config, ms, started
from bad_inputs.nulls import TEXT
from millstream.errors import ConfigError

JAVA = "org.apache.kafka.streams"


def refused(*told: str) -> Refused:
    return Refused(ConfigError, told)


def case(id: str, what: str, settings: dict[str, Any], outcome: Outcome) -> Case:
    """Settings that are looked at when they are made."""
    return Case(id, what, lambda: _made(settings), outcome)


def _made(settings: dict[str, Any]) -> None:
    config(**settings)


def properties(id: str, what: str, given: dict[Any, Any], outcome: Outcome) -> Case:
    """Settings in Java's words."""
    needed = {"application.id": "app", "bootstrap.servers": "b:1"}
    return Case(id, what, lambda: _read({**needed, **given}), outcome)


def _read(given: dict[Any, Any]) -> None:
    ms.StreamsConfig.from_properties(given)


def _application(**settings: Any) -> None:
    builder = ms.StreamsBuilder()
    reads_in(builder)
    ms.KafkaStreams(builder.build(), config(**settings))


class NeedsArguments:
    """Cannot be made without one."""

    def __init__(self, needed: int) -> None:
        self.needed = needed


async def later(*_: Any) -> Any:
    return None


def reads_in(builder: Any) -> None:
    builder.stream("in", **TEXT).to("out")


SETTINGS = Family(
    "Settings",
    "Refused when the `StreamsConfig` is made, before anything starts.",
    [
        Case(
            "none",
            "no settings at all",
            lambda: ms.StreamsConfig(),
            refused("needs application_id"),
        ),
        Case(
            "no-brokers",
            "no brokers",
            lambda: ms.StreamsConfig(application_id="a"),
            refused("needs bootstrap_servers"),
        ),
        case(
            "misspelt",
            "a misspelt name",
            {"num_stream_thread": 2},
            refused("num_stream_thread", "num_stream_threads"),
        ),
        case("unknown", "an unknown name", {"colour": "red"}, refused("colour")),
        case(
            "java-name",
            "a Java name as a keyword",
            {"num.stream.threads": 2},
            refused("num.stream.threads"),
        ),
        case(
            "empty-id", "an empty application_id", {"application_id": ""}, refused("application_id")
        ),
        case(
            "id-blank",
            "a blank in it",
            {"application_id": "my app"},
            refused("'my app'", "letters"),
        ),
        case("id-dots", "an application_id of dots", {"application_id": ".."}, refused("'..'")),
        case(
            "id-long",
            "one of 300 characters",
            {"application_id": "a" * 300},
            refused("300 characters", "internal topics"),
        ),
        case("id-none", "None in its place", {"application_id": None}, refused("must not be None")),
        case(
            "id-number",
            "a number in its place",
            {"application_id": 5},
            refused("application_id is 5"),
        ),
        case(
            "empty-brokers",
            "empty bootstrap_servers",
            {"bootstrap_servers": " , "},
            refused("bootstrap_servers is empty", "host:port"),
        ),
        case(
            "threads-zero",
            "no threads",
            {"num_stream_threads": 0},
            refused("num_stream_threads is 0", "at least 1"),
        ),
        case(
            "threads-negative",
            "a negative number of threads",
            {"num_stream_threads": -1},
            refused("num_stream_threads is -1"),
        ),
        case(
            "threads-text",
            "a number as text",
            {"num_stream_threads": "two"},
            refused("num_stream_threads", "'two'"),
        ),
        case(
            "threads-fraction",
            "a fraction",
            {"num_stream_threads": 1.5},
            refused("num_stream_threads", "1.5", "int"),
        ),
        case(
            "threads-bool",
            "a truth value as a number",
            {"num_stream_threads": True},
            refused("num_stream_threads", "True"),
        ),
        case(
            "interval-negative",
            "a negative interval",
            {"commit_interval_ms": -1},
            refused("commit_interval_ms is -1"),
        ),
        case(
            "interval-span",
            "a timedelta where milliseconds belong",
            {"commit_interval_ms": timedelta(seconds=1)},
            refused("commit_interval_ms=1000"),
        ),
        case(
            "bool-text", "text as a truth value", {"enable_metrics_push": "maybe"}, refused("maybe")
        ),
        case(
            "guarantee",
            "an unknown processing_guarantee",
            {"processing_guarantee": "exactly_once"},
            refused("processing_guarantee is 'exactly_once'", "exactly_once_v2"),
        ),
        case(
            "guarantee-enum",
            "a number as the processing_guarantee",
            {"processing_guarantee": 2},
            refused("processing_guarantee is 2"),
        ),
        case(
            "idle",
            "max_task_idle_ms below -1",
            {"max_task_idle_ms": -2},
            refused("max_task_idle_ms is -2"),
        ),
        case(
            "cache",
            "a negative cache",
            {"statestore_cache_max_bytes": -5},
            refused("statestore_cache_max_bytes is -5"),
        ),
        case(
            "server",
            "an application_server without port",
            {"application_server": "host"},
            refused("application_server is 'host'", "host:port"),
        ),
        case(
            "optimization",
            "an unknown optimization",
            {"topology_optimization": "al"},
            refused("topology_optimization", "al"),
        ),
        case(
            "optimizations",
            "optimizations that contradict each other",
            {"topology_optimization": "none,all"},
            refused("contradict"),
        ),
        case(
            "rack-tags",
            "six rack tags",
            {"rack_aware_assignment_tags": list("abcdef")},
            refused("at most 5 tags"),
        ),
        case(
            "handler",
            "a handler that is no function",
            {"processing_exception_handler": "fail"},
            refused("processing_exception_handler is 'fail'", "(context, record, error)"),
        ),
        case(
            "handler-class",
            "a handler's class that needs arguments",
            {"production_exception_handler": NeedsArguments},
            refused("class NeedsArguments", "without arguments"),
        ),
        case(
            "handler-async",
            "a handler that is awaited",
            {"deserialization_exception_handler": later},
            refused("deserialization_exception_handler", "async"),
        ),
        case(
            "extractor",
            "an extractor that is no function",
            {"default_timestamp_extractor": 5},
            refused("default_timestamp_extractor is 5", "(record, partition_time)"),
        ),
        Case(
            "default-serde",
            "a type as the default serde",
            started(lambda b: b.stream("in").to("out"), default_key_serde=str),
            refused("default_key_serde", "millstream.serdes"),
        ),
        case(
            "protocol",
            "group_protocol streams",
            {"group_protocol": "streams"},
            refused("group_protocol"),
        ),
        Case(
            "queue-read",
            "a dead-letter queue that the application reads",
            started(reads_in, errors_dead_letter_queue_topic_name="in"),
            refused("errors_dead_letter_queue_topic_name is 'in'", "a topic of its own"),
        ),
        Case(
            "refused",
            "a setting that is not supported yet",
            started(reads_in, processor_wrapper_class=object),
            refused("processor_wrapper_class", "not supported"),
        ),
    ],
)

CLIENTS = Family(
    "Settings of clients, and in Java's words",
    "What a client cannot honour is an error, not silence.",
    [
        case(
            "unknown",
            "a client setting that there is not",
            {"consumer": {"max.pol.records": 5}},
            refused("max.pol.records", "max.poll.records"),
        ),
        case(
            "wrong-client",
            "a consumer's setting for the producer",
            {"producer": {"max.poll.records": 5}},
            refused("producer", "max.poll.records"),
        ),
        case(
            "no-dict",
            "text in place of a dict",
            {"consumer": "earliest"},
            refused("consumer", "dictionary"),
        ),
        case("key", "a number as a setting's name", {"consumer": {5: 1}}, refused("consumer", "5")),
        case(
            "type",
            "text as a number",
            {"producer": {"linger.ms": "soon"}},
            refused("linger.ms", "'soon'"),
        ),
        case(
            "offset-reset",
            "an unknown auto.offset.reset",
            {"consumer": {"auto.offset.reset": "first"}},
            refused("auto.offset.reset", "'first'", "earliest"),
        ),
        case(
            "offset-duration",
            "a duration that is none",
            {"consumer": {"auto.offset.reset": "by_duration:soon"}},
            refused("auto.offset.reset", "ISO 8601"),
        ),
        case(
            "idempotence",
            "exactly_once_v2 without idempotence",
            {"processing_guarantee": "exactly_once_v2", "producer": {"enable.idempotence": False}},
            refused("enable.idempotence=False contradicts"),
        ),
        case(
            "in-flight",
            "exactly_once_v2 with six requests in flight",
            {
                "processing_guarantee": "exactly_once_v2",
                "producer": {"max.in.flight.requests.per.connection": 6},
            },
            refused("max.in.flight.requests.per.connection is 6", "at most 5"),
        ),
        case(
            "transaction",
            "transactions that are shorter than the commit interval",
            {
                "processing_guarantee": "exactly_once_v2",
                "commit_interval_ms": 5_000,
                "producer": {"transaction.timeout.ms": 1_000},
            },
            refused("transaction.timeout.ms (1000)", "commit_interval_ms (5000)"),
        ),
        case(
            "serializer",
            "a serializer for the producer has no effect",
            {"producer": {"key.serializer": "x"}},
            Accepted(),
        ),
        case(
            "topic-key", "a number as a topic's setting", {"topic": {5: 1}}, refused("topic", "5")
        ),
        case(
            "security",
            "an unknown security_protocol",
            {"security_protocol": "TLS"},
            refused("security_protocol", "TLS", "SSL"),
        ),
        Case(
            "state-dir-variable",
            "a state_dir with a variable that this host does not have",
            lambda: _application(state_dir="${NO_SUCH_DISK}/state"),
            refused("state_dir", "environment variable NO_SUCH_DISK is not set", "executors"),
        ),
        properties(
            "number",
            "a number that is none",
            {"num.stream.threads": "two"},
            refused("num.stream.threads", "'two'", "a number"),
        ),
        properties(
            "boolean",
            "a truth value that is none",
            {"enable.metrics.push": "yes"},
            refused("enable.metrics.push", "true or false"),
        ),
        properties(
            "java-class",
            "a Java class",
            {"default.key.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde"},
            refused("names a Java class", "millstream.serdes.STRING"),
        ),
        properties(
            "java-handler",
            "a Java handler",
            {"deserialization.exception.handler": f"{JAVA}.errors.LogAndContinueExceptionHandler"},
            refused("millstream.LogAndContinueExceptionHandler()"),
        ),
        properties(
            "java-extractor",
            "a Java extractor",
            {"default.timestamp.extractor": f"{JAVA}.processor.WallclockTimestampExtractor"},
            refused("millstream.WallclockTimestampExtractor()"),
        ),
        properties(
            "unfamiliar", "an unfamiliar key is kept, with a warning", {"my.own": 1}, Accepted()
        ),
        properties(
            "properties-key", "a key that is no text", {5: 1}, refused("key 5 is not a string")
        ),
    ],
)
