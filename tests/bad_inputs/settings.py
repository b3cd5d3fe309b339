"""Invalid settings."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from bad_inputs.case import Accepted, Case, Family, Outcome, Raises, check_start, config, ms
from bad_inputs.nulls import TEXT
from millstream.errors import ConfigError

JAVA = "org.apache.kafka.streams"


def raises(*parts: str) -> Raises:
    return Raises(ConfigError, parts)


def case(id: str, description: str, settings: dict[str, Any], outcome: Outcome) -> Case:
    """Create a case that fails when the settings are created."""
    return Case(id, description, lambda: _create_config(settings), outcome)


def _create_config(settings: dict[str, Any]) -> None:
    config(**settings)


def properties(id: str, description: str, given: dict[Any, Any], outcome: Outcome) -> Case:
    """Create a case with settings under Java's names."""
    required = {"application.id": "app", "bootstrap.servers": "b:1"}
    return Case(id, description, lambda: _read({**required, **given}), outcome)


def _read(given: dict[Any, Any]) -> None:
    ms.StreamsConfig.from_properties(given)


def _application(**settings: Any) -> None:
    builder = ms.StreamsBuilder()
    reads_in(builder)
    ms.KafkaStreams(builder.build(), config(**settings))


class NeedsArguments:
    """Requires an argument."""

    def __init__(self, required: int) -> None:
        self.required = required


async def later(*_: Any) -> Any:
    return None


def reads_in(builder: Any) -> None:
    builder.stream("in", **TEXT).to("out")


SETTINGS = Family(
    "Settings",
    "Rejected when the `StreamsConfig` is created, before anything starts.",
    [
        Case(
            "none",
            "no settings at all",
            lambda: ms.StreamsConfig(),
            raises("needs application_id"),
        ),
        Case(
            "no-brokers",
            "no brokers",
            lambda: ms.StreamsConfig(application_id="a"),
            raises("needs bootstrap_servers"),
        ),
        case(
            "misspelled",
            "a misspelled name",
            {"num_stream_thread": 2},
            raises("num_stream_thread", "num_stream_threads"),
        ),
        case(
            "threads-turned",
            "a minimum number of threads above the maximum",
            {"num_stream_threads": (8, 1)},
            raises("num_stream_threads", "(8, 1)", "Use (1, 8)"),
        ),
        case(
            "threads-of-three",
            "a range of three numbers",
            {"num_stream_threads": (1, 4, 8)},
            raises("num_stream_threads", "(1, 4, 8)", "pair of ints (minimum, maximum)"),
        ),
        case(
            "threads-none",
            "a range of threads that starts at 0",
            {"num_stream_threads": (0, 4)},
            raises("num_stream_threads", "(0, 4)", "at least 1"),
        ),
        properties(
            "threads-in-words",
            "a range of threads as text",
            {"num.stream.threads": "1 to 8"},
            raises("num.stream.threads", "'1 to 8'", "1-8"),
        ),
        case("unknown", "an unknown name", {"color": "red"}, raises("color")),
        case(
            "java-name",
            "a Java name as a keyword",
            {"num.stream.threads": 2},
            raises("num.stream.threads"),
        ),
        case(
            "empty-id", "an empty application_id", {"application_id": ""}, raises("application_id")
        ),
        case(
            "id-blank",
            "a space in the application_id",
            {"application_id": "my app"},
            raises("'my app'", "letters"),
        ),
        case("id-dots", "an application_id of dots", {"application_id": ".."}, raises("'..'")),
        case(
            "id-long",
            "an application_id of 300 characters",
            {"application_id": "a" * 300},
            raises("300 characters", "internal topics"),
        ),
        case(
            "id-none",
            "None as the application_id",
            {"application_id": None},
            raises("must not be None"),
        ),
        case(
            "id-number",
            "a number as the application_id",
            {"application_id": 5},
            raises("application_id is 5"),
        ),
        case(
            "empty-brokers",
            "empty bootstrap_servers",
            {"bootstrap_servers": " , "},
            raises("bootstrap_servers is empty", "host:port"),
        ),
        case(
            "threads-zero",
            "zero threads",
            {"num_stream_threads": 0},
            raises("num_stream_threads is 0", "at least 1"),
        ),
        case(
            "threads-negative",
            "a negative number of threads",
            {"num_stream_threads": -1},
            raises("num_stream_threads is -1"),
        ),
        case(
            "threads-text",
            "text as the number of threads",
            {"num_stream_threads": "two"},
            raises("num_stream_threads", "'two'"),
        ),
        case(
            "threads-fraction",
            "a fraction as the number of threads",
            {"num_stream_threads": 1.5},
            raises("num_stream_threads", "1.5", "int"),
        ),
        case(
            "threads-bool",
            "a bool as the number of threads",
            {"num_stream_threads": True},
            raises("num_stream_threads", "True"),
        ),
        case(
            "interval-negative",
            "a negative interval",
            {"commit_interval_ms": -1},
            raises("commit_interval_ms is -1"),
        ),
        case(
            "interval-span",
            "a timedelta instead of milliseconds",
            {"commit_interval_ms": timedelta(seconds=1)},
            raises("commit_interval_ms=1000"),
        ),
        case("bool-text", "text as a bool", {"enable_metrics_push": "maybe"}, raises("maybe")),
        case(
            "guarantee",
            "an unknown processing_guarantee",
            {"processing_guarantee": "exactly_once"},
            raises("processing_guarantee is 'exactly_once'", "exactly_once_v2"),
        ),
        case(
            "guarantee-enum",
            "a number as the processing_guarantee",
            {"processing_guarantee": 2},
            raises("processing_guarantee is 2"),
        ),
        case(
            "idle",
            "max_task_idle_ms below -1",
            {"max_task_idle_ms": -2},
            raises("max_task_idle_ms is -2"),
        ),
        case(
            "cache",
            "a negative cache size",
            {"statestore_cache_max_bytes": -5},
            raises("statestore_cache_max_bytes is -5"),
        ),
        case(
            "server",
            "an application_server without port",
            {"application_server": "host"},
            raises("application_server is 'host'", "host:port"),
        ),
        case(
            "optimization",
            "an unknown optimization",
            {"topology_optimization": "al"},
            raises("topology_optimization", "al"),
        ),
        case(
            "optimizations",
            "optimizations that contradict each other",
            {"topology_optimization": "none,all"},
            raises("contradict"),
        ),
        case(
            "rack-tags",
            "six rack tags",
            {"rack_aware_assignment_tags": list("abcdef")},
            raises("at most 5 tags"),
        ),
        case(
            "handler",
            "a handler that is not a function",
            {"processing_exception_handler": "fail"},
            raises("processing_exception_handler is 'fail'", "(context, record, error)"),
        ),
        case(
            "handler-class",
            "a handler class with required arguments",
            {"production_exception_handler": NeedsArguments},
            raises("class NeedsArguments", "without arguments"),
        ),
        case(
            "handler-async",
            "an async handler",
            {"deserialization_exception_handler": later},
            raises("deserialization_exception_handler", "async"),
        ),
        case(
            "extractor",
            "an extractor that is not a function",
            {"default_timestamp_extractor": 5},
            raises("default_timestamp_extractor is 5", "(record, partition_time)"),
        ),
        Case(
            "default-serde",
            "a type as the default serde",
            check_start(lambda b: b.stream("in").to("out"), default_key_serde=str),
            raises("default_key_serde", "millstream.serdes"),
        ),
        case(
            "protocol",
            "group_protocol streams",
            {"group_protocol": "streams"},
            raises("group_protocol"),
        ),
        Case(
            "queue-read",
            "a dead-letter queue that the application reads",
            check_start(reads_in, errors_dead_letter_queue_topic_name="in"),
            raises("errors_dead_letter_queue_topic_name is 'in'", "a separate topic for the queue"),
        ),
        Case(
            "refused",
            "a setting that is not supported yet",
            check_start(reads_in, processor_wrapper_class=object),
            raises("processor_wrapper_class", "not supported"),
        ),
    ],
)

CLIENTS = Family(
    "Client settings and Java settings",
    "A setting that a client does not support raises an error.",
    [
        case(
            "unknown",
            "an unknown client setting",
            {"consumer": {"max.pol.records": 5}},
            raises("max.pol.records", "max.poll.records"),
        ),
        case(
            "wrong-client",
            "a consumer setting for the producer",
            {"producer": {"max.poll.records": 5}},
            raises("producer", "max.poll.records"),
        ),
        case(
            "no-dict",
            "text instead of a dict",
            {"consumer": "earliest"},
            raises("consumer", "dictionary"),
        ),
        case("key", "a number as a setting's name", {"consumer": {5: 1}}, raises("consumer", "5")),
        case(
            "type",
            "text as a number",
            {"producer": {"linger.ms": "soon"}},
            raises("linger.ms", "'soon'"),
        ),
        case(
            "offset-reset",
            "an unknown auto.offset.reset",
            {"consumer": {"auto.offset.reset": "first"}},
            raises("auto.offset.reset", "'first'", "earliest"),
        ),
        case(
            "offset-duration",
            "an invalid duration",
            {"consumer": {"auto.offset.reset": "by_duration:soon"}},
            raises("auto.offset.reset", "ISO 8601"),
        ),
        case(
            "idempotence",
            "exactly_once_v2 without idempotence",
            {"processing_guarantee": "exactly_once_v2", "producer": {"enable.idempotence": False}},
            raises("enable.idempotence=False contradicts"),
        ),
        case(
            "in-flight",
            "exactly_once_v2 with six requests in flight",
            {
                "processing_guarantee": "exactly_once_v2",
                "producer": {"max.in.flight.requests.per.connection": 6},
            },
            raises("max.in.flight.requests.per.connection is 6", "at most 5"),
        ),
        case(
            "transaction",
            "a transaction timeout below the commit interval",
            {
                "processing_guarantee": "exactly_once_v2",
                "commit_interval_ms": 5_000,
                "producer": {"transaction.timeout.ms": 1_000},
            },
            raises("transaction.timeout.ms (1000)", "commit_interval_ms (5000)"),
        ),
        case(
            "serializer",
            "a serializer for the producer, which has no effect",
            {"producer": {"key.serializer": "x"}},
            Accepted(),
        ),
        case("topic-key", "a number as a topic's setting", {"topic": {5: 1}}, raises("topic", "5")),
        case(
            "security",
            "an unknown security_protocol",
            {"security_protocol": "TLS"},
            raises("security_protocol", "TLS", "SSL"),
        ),
        Case(
            "state-dir-variable",
            "a state_dir with an undefined environment variable",
            lambda: _application(state_dir="${NO_SUCH_DISK}/state"),
            raises("state_dir", "environment variable NO_SUCH_DISK is not set", "executors"),
        ),
        properties(
            "number",
            "an invalid number",
            {"num.stream.threads": "two"},
            raises("num.stream.threads", "'two'", "a number"),
        ),
        properties(
            "boolean",
            "an invalid bool",
            {"enable.metrics.push": "yes"},
            raises("enable.metrics.push", "true or false"),
        ),
        properties(
            "java-class",
            "a Java class",
            {"default.key.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde"},
            raises("names a Java class", "millstream.serdes.STRING"),
        ),
        properties(
            "java-handler",
            "a Java handler",
            {"deserialization.exception.handler": f"{JAVA}.errors.LogAndContinueExceptionHandler"},
            raises("millstream.LogAndContinueExceptionHandler()"),
        ),
        properties(
            "java-extractor",
            "a Java extractor",
            {"default.timestamp.extractor": f"{JAVA}.processor.WallclockTimestampExtractor"},
            raises("millstream.WallclockTimestampExtractor()"),
        ),
        properties(
            "unfamiliar", "an unknown key, which is kept with a warning", {"my.own": 1}, Accepted()
        ),
        properties(
            "properties-key", "a key that is not text", {5: 1}, raises("key 5 is not a string")
        ),
    ],
)
