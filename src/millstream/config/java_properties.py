"""Conversion of Java properties (dotted names) to arguments of a settings class."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from millstream.config.client_settings import is_client_setting
from millstream.config.fields import Setting, did_you_mean, import_object
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
    reader = PropertyReader(settings, properties)
    arguments: dict[str, Any] = {}
    for key, value in properties.items():
        if not isinstance(key, str):
            raise ConfigError(f"The property key {key!r} is not a string.")
        if reader.is_replaced(key):
            continue
        name, subkey, parsed = reader.read(key, value)
        if subkey is None:
            arguments[name] = parsed
        else:
            arguments.setdefault(name, {})[subkey] = parsed
    return arguments


class PropertyReader:
    """Converts properties one by one.

    Args:
        properties: all properties.
    """

    def __init__(self, settings: Iterable[Setting], properties: Mapping[str, Any]) -> None:
        self._by_dotted = {field.dotted: field for field in settings if field.kind != "mapping"}
        self._by_alias = {
            alias: field for field in self._by_dotted.values() for alias in field.aliases
        }
        self._properties = properties

    def is_replaced(self, key: str) -> bool:
        """Return whether a property has a newer name that also occurs.

        As in Kafka Streams, the newer name takes precedence.
        """
        field = self._by_alias.get(key)
        return field is not None and field.dotted in self._properties

    def read(self, key: str, value: Any, place: str = "") -> tuple[str, str | None, Any]:
        """Return the name of the setting, the key if it is a dictionary, and the value.

        Raises ConfigError if the value cannot be parsed.

        Args:
            place: the location of the property, for the warning about an unknown one.
        """
        field = self._by_dotted.get(key) or self._by_alias.get(key)
        if field is not None:
            return field.name, None, _read(field, value)
        for prefix, dictionary in _PREFIXES.items():
            if key.startswith(prefix):
                return dictionary, key.removeprefix(prefix), value
        if is_client_setting(key):
            return "clients", key, value
        if not (key.startswith("__") and key.endswith("__")):
            _log.warning(
                "%sThe setting %r is unknown and has no effect.%s",
                place,
                key,
                did_you_mean(key, self._by_dotted),
            )
        return "extra", key, value


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
    if ":" in name:
        return import_object(field.dotted, name)
    counterpart = _PYTHON_COUNTERPARTS.get(name, "an equivalent object")
    raise ConfigError(
        f"{field.dotted} is {name!r}, which names a Java class. Pass a Python object "
        f"instead ({counterpart}), or name one as module:attribute."
    )
