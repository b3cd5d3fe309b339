"""The options of the data source: text, as Spark has them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from millstream import serdes
from millstream.config import StreamsConfig
from millstream.config_fields import did_you_mean
from millstream.errors import ConfigError
from millstream.lake.plan import DEFAULT_MEMORY_BYTES, ReadPlan
from millstream.lake.store_table import SHAPES, StoreTable, Times, reach_of
from millstream.serdes import Serde
from millstream.state.builders.versioned import default_segment_ms
from millstream.state.queries.codec import Shape

_KAFKA: Final = "kafka."
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_OWNERS: Final = (
    "source='owners' asks the running application, which only its own driver can: call "
    "streams.dataframe(store, source='owners') there. From another Spark job read the changelog "
    "(source='changelog'), or ask the application over HTTP (server_port in its config)."
)

#: The options, and what each says.
OPTIONS: Final[Mapping[str, str]] = {
    "application_id": "of the application that has the store",
    "bootstrap_servers": "where the cluster is reached",
    "store": "the store's name",
    "key_serde": "the serde of its keys: STRING, LONG, ... or module:attribute",
    "value_serde": "the serde of its values",
    "kind": "key-value (the default), window, session or versioned",
    "topic": "the topic to read instead of the store's changelog",
    "source": "changelog",
    "window_size_ms": "how long windows are",
    "retention_ms": "how long the store keeps windows or sessions",
    "time_ordered": "true for the windows of a store that emits them when they close",
    "history_retention_ms": "how far back versions are kept",
    "segment_interval_ms": "the length of the intervals in which they expire together",
    "position": "the position of an earlier snapshot",
    "as_of": "of a versioned store: the time, as 2026-01-31T12:00:00Z",
    "history": "true for all versions of a versioned store",
    "partitioner": "none where keys do not lie where Kafka's default partitioner puts them",
    "startingoffsets": "of a stream: earliest (the default), latest, or a position",
    "memory_bytes": "what last records may take in the memory of a task",
    "properties": "the path of a file of Kafka's client settings, such as passwords",
    "plan": "made by millstream.lake itself",
}
_NAMED_SERDES: Final[Mapping[str, Serde[Any]]] = {
    name: value for name, value in vars(serdes).items() if isinstance(value, Serde)
}


def plan_of_options(options: Mapping[str, str]) -> ReadPlan:
    """What these options ask for.

    Raises:
        ConfigError: one is missing, unknown or wrong.
    """
    given = {name.lower(): value for name, value in options.items()}
    _check_names(given)
    if given.get("source", "changelog") != "changelog":
        wanted = given["source"]
        if wanted == "owners":
            raise ConfigError(_OWNERS)
        raise ConfigError(f"The option source is {wanted!r}, and can be 'changelog' here.")
    store, application_id = _needed(given, "store"), _needed(given, "application_id")
    shape = given.get("kind", "key-value")
    if shape not in SHAPES:
        raise ConfigError(f"The option kind is {shape!r}, and can be one of {', '.join(SHAPES)}.")
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
        is_partitioned=_partitioner(given) == "murmur2",
        starting_offsets=given.get("startingoffsets", "earliest"),
        memory_bytes=_optional(given, "memory_bytes", int) or DEFAULT_MEMORY_BYTES,
    )


def time_ms_of(time: str | datetime) -> int:
    """A time in milliseconds since the epoch; one without a time zone is one of UTC.

    Raises:
        ValueError: it is none.
    """
    moment = datetime.fromisoformat(time) if isinstance(time, str) else time
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MILLISECOND


def _check_names(given: Mapping[str, str]) -> None:
    for name in given:
        if name in OPTIONS or name.startswith(_KAFKA):
            continue
        hint = did_you_mean(name, OPTIONS) or f" There are {', '.join(OPTIONS)}."
        raise ConfigError(
            f"The data source millstream has no option {name!r}.{hint} Settings of Kafka's clients "
            "begin with 'kafka.'."
        )


def _needed(given: Mapping[str, str], name: str) -> str:
    if not given.get(name):
        raise ConfigError(
            f"The data source millstream needs the option {name}: {OPTIONS[name]}. Where the "
            "topology is at hand, streams.dataframe(store) knows all of them."
        )
    return given[name]


def _serde(given: Mapping[str, str], option: str) -> Serde[Any]:
    name = _needed(given, option)
    known = _NAMED_SERDES.get(name)
    if known is not None:
        return known
    module, _, attribute = name.partition(":")
    if not attribute:
        hint = did_you_mean(name.upper(), _NAMED_SERDES)
        raise ConfigError(
            f"The option {option} is {name!r}, which is no serde of millstream.serdes "
            f"({', '.join(_NAMED_SERDES)}).{hint} Name another one as module:attribute."
        )
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"The option {option} is {name!r}, which cannot be imported where Spark plans the "
            f"query: {error}. That is a process of its own beside the driver: it searches where "
            "the driver searched when millstream.lake.register(spark) was called, and has nothing "
            "of a notebook or of the main program. Put the serde into a module there, or give it "
            "to millstream.lake.read_store()."
        ) from error
    if not isinstance(found, Serde):
        raise ConfigError(
            f"The option {option} is {name!r}, which is a {type(found).__name__} and no Serde."
        )
    return found


def _times(given: Mapping[str, str], shape: Shape) -> Times:
    if shape == "window":
        retention_ms = _milliseconds(given, "retention_ms")
        return Times(
            window_size_ms=_milliseconds(given, "window_size_ms"),
            reach_ms=reach_of(retention_ms, last_millisecond=_flag(given, "time_ordered")),
        )
    if shape == "session":
        return Times(reach_ms=reach_of(_milliseconds(given, "retention_ms")))
    if shape == "versioned":
        history_ms = _milliseconds(given, "history_retention_ms")
        segment_ms = _optional(given, "segment_interval_ms", int)
        return Times(history_ms=history_ms, segment_ms=segment_ms or default_segment_ms(history_ms))
    return Times()


def _milliseconds(given: Mapping[str, str], name: str) -> int:
    _needed(given, name)
    number = _optional(given, name, int)
    assert number is not None
    if number < 0:
        raise ConfigError(f"The option {name} is {number}, and must not be negative.")
    return number


def _optional(given: Mapping[str, str], name: str, read: Callable[[str], int]) -> int | None:
    if name not in given:
        return None
    try:
        return read(given[name])
    except ValueError as error:
        raise ConfigError(
            f"The option {name} is {given[name]!r}, which cannot be read ({error}): "
            f"{OPTIONS[name]}."
        ) from error


def _flag(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "false").lower()
    if text not in ("true", "false"):
        raise ConfigError(f"The option {name} is {given[name]!r}, and can be true or false.")
    return text == "true"


def _partitioner(given: Mapping[str, str]) -> str:
    name = given.get("partitioner", "murmur2")
    if name not in ("murmur2", "none"):
        raise ConfigError(f"The option partitioner is {name!r}, and can be murmur2 or none.")
    return name


def _config(given: Mapping[str, str], application_id: str) -> StreamsConfig:
    properties: dict[str, Any] = {}
    if "properties" in given:
        properties = _read_file(given["properties"])
    properties |= {
        name.removeprefix(_KAFKA): value for name, value in given.items() if name.startswith(_KAFKA)
    }
    properties["application.id"] = application_id
    if "bootstrap_servers" in given or "bootstrap.servers" not in properties:
        properties["bootstrap.servers"] = _needed(given, "bootstrap_servers")
    return StreamsConfig.from_properties(properties)


def _read_file(path: str) -> dict[str, Any]:
    """The settings of a file of Java's properties: a name and a value a line."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError as error:
        raise ConfigError(
            f"The option properties is {path!r}, which cannot be read where Spark plans the query: "
            f"{error}."
        ) from error
    pairs = (line.partition("=") for line in map(str.strip, lines) if line and line[0] not in "#!")
    return {name.strip(): value.strip() for name, _, value in pairs}
