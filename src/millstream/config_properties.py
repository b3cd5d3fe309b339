"""Java's way to write settings, dotted names with string values, turned into the arguments of a
settings class."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from millstream.config_clients import is_client_setting
from millstream.config_fields import Setting, did_you_mean
from millstream.errors import ConfigError

_log = logging.getLogger(__name__)

#: The longest first, so that main.consumer.x is not taken for something else.
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

#: Java classes that stand for a default here, and so need no Python object.
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

_SERDES: Final = "org.apache.kafka.common.serialization.Serdes$"
#: What to write instead of a Java class.
_PYTHON_TWINS: Final[Mapping[str, str]] = {
    f"{_SERDES}StringSerde": "millstream.serdes.STRING",
    f"{_SERDES}BytesSerde": "millstream.serdes.BYTES",
    f"{_SERDES}ByteArraySerde": "millstream.serdes.BYTES",
    f"{_SERDES}LongSerde": "millstream.serdes.LONG",
    f"{_SERDES}IntegerSerde": "millstream.serdes.INTEGER",
    f"{_SERDES}ShortSerde": "millstream.serdes.SHORT",
    f"{_SERDES}DoubleSerde": "millstream.serdes.DOUBLE",
    f"{_SERDES}FloatSerde": "millstream.serdes.FLOAT",
    f"{_SERDES}BooleanSerde": "millstream.serdes.BOOLEAN",
    f"{_SERDES}UUIDSerde": "millstream.serdes.UUID",
    f"{_SERDES}VoidSerde": "millstream.serdes.VOID",
    "org.apache.kafka.streams.errors.LogAndContinueExceptionHandler": (
        "millstream.LogAndContinueExceptionHandler()"
    ),
    "org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler": (
        "millstream.LogAndContinueProcessingExceptionHandler()"
    ),
    "org.apache.kafka.streams.processor.LogAndSkipOnInvalidTimestamp": (
        "millstream.LogAndSkipOnInvalidTimestamp()"
    ),
    "org.apache.kafka.streams.processor.UsePartitionTimeOnInvalidTimestamp": (
        "millstream.UsePartitionTimeOnInvalidTimestamp()"
    ),
    "org.apache.kafka.streams.processor.WallclockTimestampExtractor": (
        "millstream.WallclockTimestampExtractor()"
    ),
    "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers": (
        "default.dsl.store=in_memory"
    ),
}


def read_properties(settings: Iterable[Setting], properties: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments that say the same as `properties`.

    Args:
        settings: the settings of the class.
        properties: values by Kafka's dotted names.

    Raises:
        ConfigError: a value cannot be read.
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
            # Follows Kafka Streams: where both are given, the newer name wins.
            field = by_alias[key]
            if field.dotted not in properties:
                arguments[field.name] = _read(field, value)
        else:
            dictionary, name = _place(key, by_dotted)
            arguments.setdefault(dictionary, {})[name] = value
    return arguments


def _place(key: str, known: Iterable[str]) -> tuple[str, str]:
    """The dictionary that an unfamiliar key goes to, and its name there."""
    for prefix, dictionary in _PREFIXES.items():
        if key.startswith(prefix):
            return dictionary, key.removeprefix(prefix)
    if is_client_setting(key):
        return "clients", key
    if not (key.startswith("__") and key.endswith("__")):
        _log.warning("The setting %r is unknown and only kept.%s", key, did_you_mean(key, known))
    return "extra", key


def _read(field: Setting, value: Any) -> Any:
    if field.kind == "object" and isinstance(value, str):
        return _object_named(field, value.strip())
    if field.dotted == "metric.reporters" and not value:
        # Java's way to switch the JMX reporter off; there is none here.
        return field.default
    if field.kind == "str" and isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return field.parsed(value)


def _object_named(field: Setting, name: str) -> Any:
    if name in _JAVA_DEFAULTS or not name:
        return None
    twin = _PYTHON_TWINS.get(name, "an object that does the same")
    raise ConfigError(
        f"{field.dotted} is {name!r}, which names a Java class. Give the Python object: {twin}."
    )
