"""Parses the options of the data source, which are strings in Spark."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from millstream import serdes
from millstream.config.fields import did_you_mean
from millstream.config.references import resolved_properties
from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError
from millstream.lake.store_table import (
    DEFAULT_MEMORY_BYTES,
    SHAPES,
    ReadPlan,
    StoreTable,
    StoreTimes,
    lookback_of,
)
from millstream.serdes import Serde
from millstream.spark.columns.serde_columns import ms_of_time
from millstream.state.builders.versioned_builders import default_segment_ms
from millstream.state.queries.codec import StoreShape

_KAFKA: Final = "kafka."
_OWNERS: Final = (
    "source='owners' queries the running application, which is only possible in its driver: call "
    "streams.dataframe(store, source='owners') there. From another Spark job, read the changelog "
    "(source='changelog'), or query the application over HTTP (server_port in its config)."
)

#: The options and their descriptions.
OPTIONS: Final[Mapping[str, str]] = {
    "application_id": "the ID of the application that has the store",
    "bootstrap_servers": "the bootstrap servers of the cluster",
    "store": "the name of the store",
    "key_serde": "the serde of keys: STRING, LONG, ... or module:attribute",
    "value_serde": "the serde of values",
    "kind": "key-value (the default), window, session or versioned",
    "topic": "the topic to read instead of the store's changelog",
    "source": "must be changelog",
    "window_size_ms": "the window size",
    "retention_ms": "the retention of windows or sessions",
    "time_ordered": "true for a persistent store of windows that are emitted when they close",
    "history_retention_ms": "the history retention of a versioned store",
    "segment_interval_ms": "the segment interval of a versioned store",
    "position": "the position of an earlier snapshot",
    "as_of": "the time at which to read a versioned store, such as 2026-01-31T12:00:00Z",
    "history": "true for all versions of a versioned store",
    "partitioner": "none if the topic is not partitioned by Kafka's default partitioner",
    "startingoffsets": "the start of a stream: earliest (the default), latest, or a position",
    "memory_bytes": "the memory limit of a task for the stored records of a partition",
    "properties": "the path of a file with Kafka client settings, such as passwords",
    "plan": "set by millstream.lake; not for users",
}
_NAMED_SERDES: Final[Mapping[str, Serde[Any]]] = {
    name: value for name, value in vars(serdes).items() if isinstance(value, Serde)
}


def plan_from_options(options: Mapping[str, str]) -> ReadPlan:
    """Create a plan.

    Raises a `ConfigError` if an option is missing, unknown or invalid.
    """
    given = {name.lower(): value for name, value in options.items()}
    _check_names(given)
    source = given.get("source", "changelog")
    if source == "owners":
        raise ConfigError(_OWNERS)
    if source != "changelog":
        raise ConfigError(f"The option source is {source!r}, but must be 'changelog'.")
    store, application_id = _required(given, "store"), _required(given, "application_id")
    shape = given.get("kind", "key-value")
    if shape not in SHAPES:
        raise ConfigError(f"The option kind is {shape!r}, but must be one of {', '.join(SHAPES)}.")
    table = StoreTable(
        store,
        given.get("topic", f"{application_id}-{store}-changelog"),
        shape,
        _serde(given, "key_serde"),
        _serde(given, "value_serde"),
        _times(given, shape),
    )
    return ReadPlan(
        _config(given, application_id),
        table,
        position=given.get("position"),
        as_of_ms=_optional(given, "as_of", time_ms_of),
        history=_flag(given, "history"),
        is_partitioned=_is_partitioned(given),
        starting_offsets=given.get("startingoffsets", "earliest"),
        memory_bytes=_optional(given, "memory_bytes", int) or DEFAULT_MEMORY_BYTES,
    )


def time_ms_of(time: str | datetime) -> int:
    """Convert a time to milliseconds since the epoch; the default time zone is UTC."""
    moment = datetime.fromisoformat(time) if isinstance(time, str) else time
    return ms_of_time(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


def _check_names(given: Mapping[str, str]) -> None:
    for name in given:
        if name in OPTIONS or name.startswith(_KAFKA):
            continue
        hint = did_you_mean(name, OPTIONS) or f" The options are {', '.join(OPTIONS)}."
        raise ConfigError(
            f"The data source millstream has no option {name!r}.{hint} Kafka client settings start "
            "with 'kafka.'."
        )


def _required(given: Mapping[str, str], name: str) -> str:
    if not given.get(name):
        raise ConfigError(
            f"The data source millstream requires the option {name}: {OPTIONS[name]}. If you "
            "have the application's KafkaStreams object, streams.dataframe(store) sets all options."
        )
    return given[name]


def _serde(given: Mapping[str, str], option: str) -> Serde[Any]:
    name = _required(given, option)
    named = _NAMED_SERDES.get(name)
    if named is not None:
        return named
    module, _, attribute = name.partition(":")
    if not attribute:
        hint = did_you_mean(name.upper(), _NAMED_SERDES)
        raise ConfigError(
            f"The option {option} is {name!r}, which is not a serde of millstream.serdes "
            f"({', '.join(_NAMED_SERDES)}).{hint} For other serdes, use module:attribute."
        )
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"The option {option} is {name!r}, but the process that plans the query cannot import "
            f"it: {error}. This process has the sys.path that the driver had when it called "
            "millstream.lake.register(spark), but no objects from a notebook or the main program. "
            "Move the serde to an importable module, or pass it to "
            "millstream.lake.read_store()."
        ) from error
    if not isinstance(found, Serde):
        raise ConfigError(
            f"The option {option} is {name!r}, which is a {type(found).__name__}, not a Serde."
        )
    return found


def _times(given: Mapping[str, str], shape: StoreShape) -> StoreTimes:
    if shape == "window":
        retention_ms = _milliseconds(given, "retention_ms")
        return StoreTimes(
            window_size_ms=_milliseconds(given, "window_size_ms"),
            lookback_ms=lookback_of(retention_ms, last_millisecond=_flag(given, "time_ordered")),
        )
    if shape == "session":
        return StoreTimes(lookback_ms=lookback_of(_milliseconds(given, "retention_ms")))
    if shape == "versioned":
        history_ms = _milliseconds(given, "history_retention_ms")
        given_ms = _optional(given, "segment_interval_ms", int)
        segment_ms = given_ms or default_segment_ms(history_ms)
        return StoreTimes(history_ms=history_ms, segment_ms=segment_ms)
    return StoreTimes()


def _milliseconds(given: Mapping[str, str], name: str) -> int:
    _required(given, name)
    number = _optional(given, name, int)
    assert number is not None
    if number < 0:
        raise ConfigError(f"The option {name} is {number}, but must not be negative.")
    return number


def _optional(given: Mapping[str, str], name: str, read: Callable[[str], int]) -> int | None:
    if name not in given:
        return None
    try:
        return read(given[name])
    except ValueError as error:
        raise ConfigError(
            f"The option {name} is {given[name]!r}, which is invalid ({error}): {OPTIONS[name]}."
        ) from error


def _flag(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "false").lower()
    if text not in ("true", "false"):
        raise ConfigError(f"The option {name} is {given[name]!r}, but must be true or false.")
    return text == "true"


def _is_partitioned(given: Mapping[str, str]) -> bool:
    name = given.get("partitioner", "murmur2")
    if name not in ("murmur2", "none"):
        raise ConfigError(f"The option partitioner is {name!r}, but must be murmur2 or none.")
    return name == "murmur2"


def _config(given: Mapping[str, str], application_id: str) -> StreamsConfig:
    # The process that plans the query reads the file.
    properties: dict[str, Any] = {}
    if "properties" in given:
        properties.update(resolved_properties(given["properties"]))
    properties |= {
        name.removeprefix(_KAFKA): value for name, value in given.items() if name.startswith(_KAFKA)
    }
    properties["application.id"] = application_id
    if "bootstrap_servers" in given or "bootstrap.servers" not in properties:
        properties["bootstrap.servers"] = _required(given, "bootstrap_servers")
    return StreamsConfig.from_properties(properties)
