"""Avro, Protobuf and JSON Schema in Confluent's wire format, with a schema registry.

The work is done by confluent-kafka's serializers, which are optional extras of this package. They
and their connections are made on first use, in the process that serializes: a serde is pickled as
the call that made it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar, overload

from millstream.serdes._mock_registry import MockRegistry
from millstream.serdes._serde import Serde, reason, shown

T = TypeVar("T")

#: The address of a registry, or confluent-kafka's settings for its client, `url` among them.
Registry = str | Mapping[str, Any]

_TOPIC_NAMES = {"subject.name.strategy.type": "TOPIC"}

_clients: dict[str, Any] = {}
_clients_lock = threading.Lock()


@overload
def avro(
    schema: str | Mapping[str, Any],
    registry: Registry,
    *,
    to_dict: Callable[[T], dict[str, Any]],
    from_dict: Callable[[dict[str, Any]], T],
    is_key: bool = False,
    serializer: Mapping[str, Any] | None = None,
    deserializer: Mapping[str, Any] | None = None,
) -> Serde[T]: ...
@overload
def avro(
    schema: str | Mapping[str, Any] | None,
    registry: Registry,
    *,
    to_dict: None = None,
    from_dict: None = None,
    is_key: bool = False,
    serializer: Mapping[str, Any] | None = None,
    deserializer: Mapping[str, Any] | None = None,
) -> Serde[Any]: ...
def avro(
    schema: str | Mapping[str, Any] | None,
    registry: Registry,
    *,
    to_dict: Callable[[Any], dict[str, Any]] | None = None,
    from_dict: Callable[[dict[str, Any]], Any] | None = None,
    is_key: bool = False,
    serializer: Mapping[str, Any] | None = None,
    deserializer: Mapping[str, Any] | None = None,
) -> Serde[Any]:
    """Avro with a schema registry, in Confluent's wire format (`millstream[avro]`).

    Records are dicts, unless `to_dict` and `from_dict` make them something else. A schema is
    registered when the first value is written to a topic, under the subject `<topic>-value`, or
    `<topic>-key` for keys; what is read is resolved to `schema`.

    Args:
        schema: an Avro schema as JSON text or as a dict, or the name of a primitive type. None
            reads each record as it was written, and can write nothing.
        registry: the registry's address, or settings of confluent-kafka's `SchemaRegistryClient`.
        to_dict: turns a value into the dict to be written.
        from_dict: turns a dict that was read into a value.
        is_key: whether it is for keys. Maps in keys are written with sorted names, so that equal
            keys have equal bytes.
        serializer: settings of confluent-kafka's `AvroSerializer` over the defaults, for example
            `{"auto.register.schemas": False}`.
        deserializer: the same for `AvroDeserializer`.

    Raises:
        ImportError: the extra is not installed.

    Example:
        >>> schema = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}
        >>> order = avro(schema, "http://registry:8081")
        >>> orders = StreamsBuilder().stream("orders", key=STRING, value=order)
    """
    text = None if schema is None else _as_text(schema)
    if text is not None and text.isalpha():
        text = json.dumps({"type": text})
    return _AvroSerde(
        "avro", text, registry, is_key, (to_dict, from_dict), serializer, deserializer
    )


@overload
def json_schema(
    schema: str | Mapping[str, Any],
    registry: Registry,
    *,
    to_dict: Callable[[T], dict[str, Any]],
    from_dict: Callable[[dict[str, Any]], T],
    is_key: bool = False,
    serializer: Mapping[str, Any] | None = None,
    deserializer: Mapping[str, Any] | None = None,
) -> Serde[T]: ...
@overload
def json_schema(
    schema: str | Mapping[str, Any],
    registry: Registry,
    *,
    to_dict: None = None,
    from_dict: None = None,
    is_key: bool = False,
    serializer: Mapping[str, Any] | None = None,
    deserializer: Mapping[str, Any] | None = None,
) -> Serde[Any]: ...
def json_schema(
    schema: str | Mapping[str, Any],
    registry: Registry,
    *,
    to_dict: Callable[[Any], dict[str, Any]] | None = None,
    from_dict: Callable[[dict[str, Any]], Any] | None = None,
    is_key: bool = False,
    serializer: Mapping[str, Any] | None = None,
    deserializer: Mapping[str, Any] | None = None,
) -> Serde[Any]:
    """JSON checked against a schema from a registry (`millstream[json-schema]`).

    Confluent's wire format: the schema's id, then JSON. Otherwise like `avro`.

    Args:
        schema: a JSON Schema as text or as a dict, with a `title`.
        registry: the registry's address, or settings of confluent-kafka's `SchemaRegistryClient`.
        to_dict: turns a value into the dict to be written.
        from_dict: turns a dict that was read into a value.
        is_key: whether it is for keys. They are written with sorted names, so that equal keys have
            equal bytes.
        serializer: settings of confluent-kafka's `JSONSerializer` over the defaults.
        deserializer: the same for `JSONDeserializer`.

    Raises:
        ImportError: the extra is not installed.

    Example:
        >>> schema = {"title": "Order", "type": "object", "properties": {"n": {"type": "integer"}}}
        >>> registry = {"url": "https://registry:8081", "basic.auth.user.info": "me:secret"}
        >>> order = json_schema(schema, registry)
        >>> orders = StreamsBuilder().stream("orders", key=STRING, value=order)
    """
    return _JsonSchemaSerde(
        "json_schema",
        _as_text(schema),
        registry,
        is_key,
        (to_dict, from_dict),
        serializer,
        deserializer,
    )


def protobuf(
    message: type[T],
    registry: Registry,
    *,
    is_key: bool = False,
    serializer: Mapping[str, Any] | None = None,
    deserializer: Mapping[str, Any] | None = None,
) -> Serde[T]:
    """Messages of a class that `protoc` generated (`millstream[protobuf]`).

    Confluent's wire format: the schema's id, the message's place in its file, the message.
    Otherwise like `avro`.

    Args:
        message: the class of the messages.
        registry: the registry's address, or settings of confluent-kafka's `SchemaRegistryClient`.
        is_key: whether it is for keys.
        serializer: settings of confluent-kafka's `ProtobufSerializer` over the defaults.
        deserializer: the same for `ProtobufDeserializer`.

    Raises:
        ImportError: the extra is not installed.
        ValueError: it is for keys, and the message has a map.

    Example:
        >>> from google.protobuf.timestamp_pb2 import Timestamp  # or a class of your own
        >>> seen = protobuf(Timestamp, "http://registry:8081")
        >>> last_seen = StreamsBuilder().table("last-seen", key=STRING, value=seen)
    """
    serde = _ProtobufSerde(
        "protobuf", message, registry, is_key, (None, None), serializer, deserializer
    )
    if is_key and (field := _map_field(message.DESCRIPTOR, set())) is not None:  # type: ignore[attr-defined]
        raise ValueError(
            f"{serde.name} cannot be for keys: the entries of the map {field} are written in any "
            "order, so that equal keys would have different bytes. Make the key a message without "
            "maps."
        )
    return serde


class RegistrySerde(Serde[Any]):
    """What the three have in common. Subclasses make the serializer and the deserializer."""

    #: The extra of this package, and the module of confluent-kafka that it makes importable.
    extra: str
    module: str

    def __init__(
        self,
        maker: str,
        schema: Any,
        registry: Registry,
        is_key: bool,
        conversions: tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None],
        serializer: Mapping[str, Any] | None,
        deserializer: Mapping[str, Any] | None,
    ) -> None:
        self._arguments = (
            maker,
            schema,
            registry,
            is_key,
            conversions,
            serializer,
            deserializer,
        )
        self._schema = schema
        self._settings = {"url": registry} if isinstance(registry, str) else dict(registry)
        self._is_key = is_key
        self._to_dict, self._from_dict = conversions
        self._writer_settings = {**_TOPIC_NAMES, **(serializer or {})}
        self._reader_settings = {**_TOPIC_NAMES, **(deserializer or {})}
        self._api = _imported(self.module, f"{maker}()", self.extra)
        self._field = import_module("confluent_kafka.serialization")
        #: By topic. A serializer of confluent-kafka writes the id of the schema that it registered
        #: last, under whichever subject, so that the bytes of a key would depend on what the
        #: serializer wrote before.
        self._writers: dict[str, Callable[[Any, Any], bytes]] = {}
        self._read: Callable[[bytes, Any], Any] | None = None
        self._depends_on_order = self.depends_on_order()
        super().__init__(self._encode, self._decode, name=f"{maker}({self.title()})")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), self._arguments)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, RegistrySerde)
        return self._arguments == other._arguments

    def __hash__(self) -> int:
        return hash((type(self), self.name, self._is_key))

    @property
    def schema(self) -> Any:
        """The schema's text, or the class of messages; None where each record says its own."""
        return self._schema

    @property
    def conversions(self) -> tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]:
        """What makes dicts of values, and values of dicts, if they are not dicts themselves."""
        return self._to_dict, self._from_dict

    def title(self) -> str:
        """What to call the schema in errors."""
        raise NotImplementedError

    def depends_on_order(self) -> bool:
        """Whether the bytes of a value depend on the order of the names in its dicts."""
        return False

    def make_writer(self, client: Any) -> Callable[[Any, Any], bytes]:
        """confluent-kafka's serializer."""
        raise NotImplementedError

    def make_reader(self, client: Any) -> Callable[[bytes, Any], Any]:
        """confluent-kafka's deserializer."""
        raise NotImplementedError

    def _encode(self, topic: str, value: Any) -> bytes:
        write = self._writers.get(topic)
        if write is None:
            write = self._writers[topic] = self.make_writer(_client(self._settings))
        if self._to_dict is not None:
            value = self._to_dict(value)
        if self._is_key and self._depends_on_order:
            value = _ordered(value)
        return write(value, self._context(topic))

    def _decode(self, topic: str, data: bytes) -> Any:
        if self._read is None:
            self._read = self.make_reader(_client(self._settings))
        value = self._read(data, self._context(topic))
        return value if self._from_dict is None else self._from_dict(value)

    def _context(self, topic: str) -> Any:
        api = self._field
        field = api.MessageField.KEY if self._is_key else api.MessageField.VALUE
        return api.SerializationContext(topic, field)

    def _cannot_serialize(self, value: Any, error: Exception) -> str:
        if not _is_registry_trouble(error):
            return super()._cannot_serialize(value, error)
        return f"{self.name} cannot serialize {shown(value)}: {self._trouble(error)}"

    def _cannot_deserialize(self, data: Any, error: Exception) -> str:
        if not _is_registry_trouble(error):
            return super()._cannot_deserialize(data, error)
        return f"{self.name} cannot deserialize {shown(data)}: {self._trouble(error)}"

    def _trouble(self, error: Exception) -> str:
        return (
            f"the schema registry at {self._settings.get('url')} refused or did not answer "
            f"({reason(error)}). See that it runs, that its address and credentials are right, and "
            "that the subject allows the schema."
        )


class _AvroSerde(RegistrySerde):
    extra = "avro"
    module = "confluent_kafka.schema_registry.avro"

    def title(self) -> str:
        return "any" if self._schema is None else _title(self._schema, "name")

    def depends_on_order(self) -> bool:
        # Fields are written in the order of the schema, entries of maps in that of the dict.
        return '"map"' in (self._schema or "")

    def make_writer(self, client: Any) -> Callable[[Any, Any], bytes]:
        if self._schema is None:
            raise ValueError("avro(None, ...) can only read: give the schema to write with")
        writer: Any = self._api.AvroSerializer(client, self._schema, None, self._writer_settings)
        return writer  # type: ignore[no-any-return]

    def make_reader(self, client: Any) -> Callable[[bytes, Any], Any]:
        reader: Any = self._api.AvroDeserializer(
            client, self._schema, None, False, self._reader_settings
        )
        return reader  # type: ignore[no-any-return]


class _JsonSchemaSerde(RegistrySerde):
    extra = "json-schema"
    module = "confluent_kafka.schema_registry.json_schema"

    def title(self) -> str:
        return _title(self._schema, "title")

    def depends_on_order(self) -> bool:
        return True

    def make_writer(self, client: Any) -> Callable[[Any, Any], bytes]:
        writer: Any = self._api.JSONSerializer(self._schema, client, None, self._writer_settings)
        return writer  # type: ignore[no-any-return]

    def make_reader(self, client: Any) -> Callable[[bytes, Any], Any]:
        reader: Any = self._api.JSONDeserializer(self._schema, None, client, self._reader_settings)
        return reader  # type: ignore[no-any-return]


class _ProtobufSerde(RegistrySerde):
    extra = "protobuf"
    module = "confluent_kafka.schema_registry.protobuf"

    def title(self) -> str:
        return str(getattr(self._schema, "__name__", self._schema))

    def make_writer(self, client: Any) -> Callable[[Any, Any], bytes]:
        writer: Any = self._api.ProtobufSerializer(self._schema, client, self._writer_settings)
        return writer  # type: ignore[no-any-return]

    def make_reader(self, client: Any) -> Callable[[bytes, Any], Any]:
        reader: Any = self._api.ProtobufDeserializer(self._schema, self._reader_settings, client)
        return reader  # type: ignore[no-any-return]


def _imported(module: str, what: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{what} needs packages that are not installed ({error}). "
            f"Install them: pip install 'millstream[{extra}]'"
        ) from error


def _client(settings: Mapping[str, Any]) -> Any:
    """The client of a registry: one a process for equal settings, as it caches schemas."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    identity = repr(sorted(settings.items()))
    with _clients_lock:
        if identity not in _clients:
            client = SchemaRegistryClient.new_client(dict(settings))
            is_mock = str(settings.get("url")).startswith("mock://")
            _clients[identity] = MockRegistry(client) if is_mock else client
        return _clients[identity]


def _map_field(message: Any, seen: set[str]) -> str | None:
    """The name of a map in a message or in the messages in it; None if there is none."""
    seen.add(message.full_name)
    for field in message.fields:
        inner = field.message_type
        if inner is None:
            continue
        if inner.GetOptions().map_entry:
            return str(field.full_name)
        if inner.full_name not in seen and (found := _map_field(inner, seen)) is not None:
            return found
    return None


def _ordered(value: Any) -> Any:
    """A key with its dicts sorted, so that equal keys have equal bytes."""
    if type(value) is dict:
        try:
            # For three fields a tenth of the time that confluent-kafka's serializer takes.
            return {name: _ordered(value[name]) for name in sorted(value)}
        except TypeError:
            return value  # names that are no text, which the serializer refuses
    if type(value) is list:
        return [_ordered(item) for item in value]
    return value


def _is_registry_trouble(error: Exception) -> bool:
    """Whether it is the registry that failed, and not the value."""
    origin = type(error).__module__
    return origin.startswith(("httpx", "httpcore", "confluent_kafka.schema_registry.error"))


def _as_text(schema: str | Mapping[str, Any]) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema)


def _title(text: str, key: str) -> str:
    """A schema's name, as far as it has one; errors in it are found where it is used."""
    try:
        schema = json.loads(text)
    except ValueError:
        return text.strip()
    if isinstance(schema, dict):
        return str(schema.get(key) or schema.get("type", "schema"))
    return schema if isinstance(schema, str) else "union"
