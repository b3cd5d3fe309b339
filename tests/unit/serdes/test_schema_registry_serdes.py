"""Avro, Protobuf and JSON Schema against a registry: bytes, subjects, pickling, errors."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import pytest
from support.broker.schema_registry import SchemaRegistry, schema_registry

from millstream import StreamsBuilder
from millstream.errors import SerializationError
from millstream.serdes import STRING, Serde, avro, json_schema, protobuf
from millstream.testing import TopologyTestDriver

pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")
pytest.importorskip("jsonschema")
pytest.importorskip("confluent_kafka.schema_registry")

_AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "user", "type": "string"}, {"name": "amount", "type": "int"}],
}
_JSON = {
    "title": "Order",
    "type": "object",
    "properties": {"user": {"type": "string"}, "amount": {"type": "integer"}},
    "required": ["user"],
}
_ORDER = {"user": "alice", "amount": 5}


@dataclass(frozen=True)
class Order:
    user: str
    amount: int


def made_order(fields: dict[str, Any]) -> Order:
    return Order(**fields)


def order_message() -> type[Any]:
    """The class that protoc would have generated for a message Order."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="user", number=1, type=9, label=1)
    message.field.add(name="amount", number=2, type=5, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind: type[Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
    return kind


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as registry:
        yield registry


def header(number: int) -> bytes:
    """Confluent's wire format: a zero, then the schema's id."""
    return b"\0" + number.to_bytes(4, "big")


def test_avro_bytes(registry: SchemaRegistry) -> None:
    """The magic byte, the id, then Avro; the subject is called after the topic."""
    serde = avro(_AVRO, registry.url)
    data = serde.serialize("orders", _ORDER)
    assert data == header(1) + b"\x0aalice\x0a"
    assert serde.deserialize("orders", data) == _ORDER
    assert registry.subjects == {"orders-value": [1]}


def test_keys_have_a_subject_of_their_own(registry: SchemaRegistry) -> None:
    """A serde for keys registers under `-key`, and a primitive schema will do."""
    serde = avro("string", registry.url, is_key=True)
    assert serde.serialize("orders", "k") == header(1) + b"\x02k"
    assert list(registry.subjects) == ["orders-key"]


def test_avro_reads_what_was_written_with_an_older_schema(registry: SchemaRegistry) -> None:
    """A reader's schema fills in what a writer did not know."""
    data = avro(_AVRO, registry.url).serialize("orders", _ORDER)
    note = {"name": "note", "type": "string", "default": "-"}
    newer = {**_AVRO, "fields": [*_AVRO["fields"], note]}
    assert avro(newer, registry.url).deserialize("orders", data) == {**_ORDER, "note": "-"}
    assert avro(None, registry.url).deserialize("orders", data) == _ORDER


@pytest.mark.parametrize("maker", [avro, json_schema])
def test_values_of_the_users_own(registry: SchemaRegistry, maker: Callable[..., Any]) -> None:
    """`to_dict` and `from_dict` stand between the user's type and the format's dicts."""
    schema = _AVRO if maker is avro else _JSON
    serde = maker(schema, registry.url, to_dict=asdict, from_dict=made_order)
    data = serde.serialize("orders", Order("bob", 7))
    assert serde.deserialize("orders", data) == Order("bob", 7)


def test_json_schema_is_checked(registry: SchemaRegistry) -> None:
    """JSON behind the id; what does not fit the schema is refused on both ways."""
    serde = json_schema(_JSON, registry.url)
    data = serde.serialize("orders", _ORDER)
    assert data is not None
    assert data.startswith(header(1) + b"{")
    assert serde.deserialize("orders", data) == _ORDER
    with pytest.raises(SerializationError, match="user"):
        serde.serialize("orders", {"amount": 5})
    with pytest.raises(SerializationError, match="user"):
        serde.deserialize("orders", header(1) + b"{}")


def test_protobuf_bytes(registry: SchemaRegistry) -> None:
    """Between the id and the message stands the message's place in its file."""
    message = order_message()
    serde = protobuf(message, registry.url)
    order = message(user="alice", amount=5)
    data = serde.serialize("orders", order)
    assert data == header(1) + b"\0" + order.SerializeToString()
    assert serde.deserialize("orders", data) == order
    assert serde.name == "protobuf(Order)"


def test_a_serde_travels_without_its_connection(registry: SchemaRegistry) -> None:
    """Pickled after use, it serializes the same elsewhere, and equals the first one."""
    serde = avro(_AVRO, {"url": registry.url}, serializer={"normalize.schemas": True})
    data = serde.serialize("orders", _ORDER)
    copied = pickle.loads(pickle.dumps(serde))
    assert copied == serde
    assert copied.serialize("orders", _ORDER) == data
    assert avro(_AVRO, registry.url) != serde


def test_a_schema_is_asked_for_once(registry: SchemaRegistry) -> None:
    """However many records there are, and whichever serde of the process asks."""
    serdes = [avro(_AVRO, registry.url) for _ in range(2)]
    datas = [data for serde in serdes for data in serde.serialize_many("orders", [_ORDER] * 50)]
    assert len(set(datas)) == 1
    assert avro(_AVRO, registry.url).deserialize_many("orders", datas) == [_ORDER] * 100
    assert registry.requests.count("POST /subjects/orders-value/versions") == 1


def test_settings_reach_the_serializer(registry: SchemaRegistry) -> None:
    """With automatic registration off, an unknown schema is the registry's refusal."""
    serde = avro(_AVRO, registry.url, serializer={"auto.register.schemas": False})
    with pytest.raises(SerializationError, match=r"schema registry at http://127\.0\.0\.1.*404"):
        serde.serialize("orders", _ORDER)
    registry.register("orders-value", {"schema": avro_text(registry)})
    assert serde.serialize("orders", _ORDER) == header(1) + b"\x0aalice\x0a"


def avro_text(registry: SchemaRegistry) -> str:
    """The schema's text as the serializer sends it."""
    with schema_registry() as other:
        avro(_AVRO, other.url).serialize("orders", _ORDER)
        return str(other.schemas[1]["schema"])


def test_a_registry_that_does_not_answer() -> None:
    """The error tells the registry, not the data, to be at fault."""
    settings = {"url": "http://127.0.0.1:1", "max.retries": 0, "retries.wait.ms": 1}
    with pytest.raises(SerializationError, match=r"registry at http://127\.0\.0\.1:1 refused"):
        avro(_AVRO, settings).serialize("orders", _ORDER)
    with pytest.raises(SerializationError, match=r"registry at http://127\.0\.0\.1:1 refused"):
        avro(_AVRO, settings).deserialize("orders", header(9) + b"x")


def test_data_of_another_format(registry: SchemaRegistry) -> None:
    """Bytes without the magic byte are the data's fault."""
    with pytest.raises(SerializationError, match="Probably the data was written in another"):
        avro(_AVRO, registry.url).deserialize("orders", b"{}")


def test_writing_without_a_schema(registry: SchemaRegistry) -> None:
    """avro(None) reads only."""
    with pytest.raises(SerializationError, match="give the schema to write with"):
        avro(None, registry.url).serialize("orders", _ORDER)


@pytest.mark.parametrize(
    ("maker", "extra"),
    [(avro, "avro"), (json_schema, "json-schema"), (protobuf, "protobuf")],
)
def test_a_missing_extra_is_named(
    maker: Callable[..., Serde[Any]], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the packages the error says what to install, where the serde is made."""

    def without(name: str) -> Any:
        if name.startswith("confluent_kafka.schema_registry"):
            raise ImportError("No module named 'httpx2'")
        return import_module(name)

    monkeypatch.setattr("millstream.serdes._registry.import_module", without)
    with pytest.raises(ImportError, match=rf"pip install 'millstream\[{extra}\]'"):
        maker("{}", "http://127.0.0.1:1")


def test_in_a_topology(registry: SchemaRegistry) -> None:
    """Read as Avro, counted, with the store's serdes registered under the changelog's name."""
    orders = avro(_AVRO, registry.url, to_dict=asdict, from_dict=made_order)
    builder = StreamsBuilder()
    stream = builder.stream("orders", key=STRING, value=orders)
    stream.filter(lambda key, order: order.amount > 3).to("big")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("orders", key=STRING, value=orders)
        topic.pipe_input("a", Order("alice", 5))
        topic.pipe_input("b", Order("bob", 1))
        big = driver.create_output_topic("big", key=STRING, value=orders)
        assert big.read_key_values() == [("a", Order("alice", 5))]
    assert set(registry.subjects) == {"orders-value", "big-value"}
