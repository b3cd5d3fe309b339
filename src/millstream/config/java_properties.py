"""Conversion of Java properties (dotted names) to arguments of a settings class."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from millstream.config.client_settings import is_client_setting
from millstream.config.fields import Setting, did_you_mean
from millstream.errors import ConfigError

_log = logging.getLogger(__name__)

#: The prefixes of the dictionaries in `StreamsConfig`.
_PREFIXES: Final[Mapping[str, str]] = {
    "main.consumer.": "main_consumer",
    "restore.consumer.": "restore_consumer",
    "global.consumer.": "global_consumer",
    "consumer.": "consumer",
    "producer.": "producer",
    "admin.": "admin",
    "topic.": "topic",
    "client.tag.": "client_tags",
}

#: Java classes whose behavior is Millstream's default, so no Python object is needed.
_JAVA_DEFAULTS: Final = frozenset(
    {
        "org.apache.kafka.streams.errors.LogAndFailExceptionHandler",
        "org.apache.kafka.streams.errors.LogAndFailProcessingExceptionHandler",
        "org.apache.kafka.streams.errors.DefaultProductionExceptionHandler",
        "org.apache.kafka.streams.processor.FailOnInvalidTimestamp",
        "org.apache.kafka.streams.processor.internals.DefaultKafkaClientSupplier",
        "org.apache.kafka.streams.processor.internals.NoOpProcessorWrapper",
        "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$RocksDBDslStoreSuppliers",
    }
)

_STREAMS: Final = "org.apache.kafka.streams"
_SERDES: Final = "org.apache.kafka.common.serialization.Serdes$"
#: The Python counterparts of Java classes, for messages.
_PYTHON_COUNTERPARTS: Final[Mapping[str, str]] = {
    **{
        f"{_SERDES}{kind}Serde": f"millstream.serdes.{kind.upper()}"
        for kind in ("String", "Bytes", "Long", "Integer", "Short", "Double", "Float", "Boolean")
    },
    f"{_SERDES}ByteArraySerde": "millstream.serdes.BYTES",
    f"{_SERDES}UUIDSerde": "millstream.serdes.UUID",
    f"{_SERDES}VoidSerde": "millstream.serdes.VOID",
    **{
        f"{_STREAMS}.{package}.{name}": f"millstream.{name}()"
        for package, name in (
            ("errors", "LogAndContinueExceptionHandler"),
            ("errors", "LogAndContinueProcessingExceptionHandler"),
            ("processor", "LogAndSkipOnInvalidTimestamp"),
            ("processor", "UsePartitionTimeOnInvalidTimestamp"),
            ("processor", "WallclockTimestampExtractor"),
        )
    },
    f"{_STREAMS}.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers": (
        "default.dsl.store=in_memory"
    ),
}


def read_properties(settings: Iterable[Setting], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Convert properties to keyword arguments.

    Raises ConfigError if a value cannot be parsed.
    """
    by_dotted = {field.dotted: field for field in settings if field.kind != "mapping"}
    by_alias = {alias: field for field in by_dotted.values() for alias in field.aliases}
    arguments: dict[str, Any] = {}
    for key, value in properties.items():
        if not isinstance(key, str):
            raise ConfigError(f"The property key {key!r} is not a string.")
        field = by_dotted.get(key)
        if field is not None:
            arguments[field.name] = _read(field, value)
        elif key in by_alias:
            # As in Kafka Streams, the newer name takes precedence.
            field = by_alias[key]
            if field.dotted not in properties:
                arguments[field.name] = _read(field, value)
        else:
            dictionary, name = _dictionary_for(key, by_dotted)
            arguments.setdefault(dictionary, {})[name] = value
    return arguments


def _dictionary_for(key: str, known: Iterable[str]) -> tuple[str, str]:
    """Return the dictionary of a key that is not a setting, and its name there."""
    for prefix, dictionary in _PREFIXES.items():
        if key.startswith(prefix):
            return dictionary, key.removeprefix(prefix)
    if is_client_setting(key):
        return "clients", key
    if not (key.startswith("__") and key.endswith("__")):
        _log.warning(
            "The setting %r is unknown and has no effect.%s", key, did_you_mean(key, known)
        )
    return "extra", key


def _read(field: Setting, value: Any) -> Any:
    if field.kind == "object" and isinstance(value, str):
        return _object_named(field, value.strip())
    if field.dotted == "metric.reporters" and not value:
        # Java's way to disable the JMX reporter, which does not exist here.
        return field.default
    if field.kind == "str" and isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return field.parsed(value)


def _object_named(field: Setting, name: str) -> Any:
    if name in _JAVA_DEFAULTS or not name:
        return None
    counterpart = _PYTHON_COUNTERPARTS.get(name, "an equivalent object")
    raise ConfigError(
        f"{field.dotted} is {name!r}, which names a Java class. Pass a Python object "
        f"instead: {counterpart}."
    )
