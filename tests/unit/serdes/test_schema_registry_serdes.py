"""Avro, Protobuf and JSON Schema against a registry: bytes, subjects, pickling, errors."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import pytest
from support.broker.schema_registry import SchemaRegistry, schema_registry

from millstream import StreamsBuilder
from millstream.errors import SerializationError
from millstream.serdes import LONG, STRING, Serde, avro, json_schema, protobuf
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


_ID = {"type": "record", "name": "Id", "fields": [{"name": "id", "type": "string"}]}
_JSON_ID = {"title": "Id", "type": "object", "properties": {"id": {"type": "string"}}}


def key_serdes(registry: str) -> list[tuple[Callable[[], Serde[Any]], Any]]:
    """How a serde of each format is made, for keys, and a key."""
    message = order_message()
    return [
        (lambda: avro(_ID, registry, is_key=True), {"id": "1"}),
        (lambda: json_schema(_JSON_ID, registry, is_key=True), {"id": "1"}),
        (lambda: protobuf(message, registry, is_key=True), message(user="alice")),
    ]


@pytest.mark.parametrize("number", range(3), ids=["avro", "json_schema", "protobuf"])
@pytest.mark.parametrize("is_mock", [True, False], ids=["mock", "real"])
def test_equal_keys_have_equal_bytes(registry: SchemaRegistry, is_mock: bool, number: int) -> None:
    """Whichever instance writes them, to whichever topic, and whatever it wrote before."""
    url = f"mock://equal-keys-{number}" if is_mock else registry.url
    make, key = key_serdes(url)[number]
    first, second = make(), make()
    topics = ["in", "changelog", "in", "out", "changelog"]
    datas = [serde.serialize(topic, key) for topic in topics for serde in (first, second)]
    datas.append(pickle.loads(pickle.dumps(first)).serialize("in", key) if number < 2 else datas[0])
    assert len(set(datas)) == 1
    assert second.deserialize("elsewhere", datas[0]) == key


@pytest.mark.parametrize("number", range(3), ids=["avro", "json_schema", "protobuf"])
def test_ids_that_depend_on_the_subject(registry: SchemaRegistry, number: int) -> None:
    """Where a registry has another id for each subject, a topic's keys have the topic's id."""
    registry.shares_ids = False
    make, key = key_serdes(registry.url)[number]
    serde = make()
    for topic, expected in [("in", 1), ("changelog", 2), ("in", 1), ("changelog", 2)]:
        data = serde.serialize(topic, key)
        assert data is not None
        assert data[:5] == header(expected)


def test_a_mock_registry_takes_another_notation_for_the_same_schema() -> None:
    """As registries do, which write schemas anew; another schema has another id."""
    spaced = avro(json.dumps(_ID, indent=2), "mock://notation", is_key=True)
    compact = avro(_ID, "mock://notation", is_key=True)
    other = avro({**_ID, "name": "Other"}, "mock://notation", is_key=True)
    datas = [serde.serialize("in", {"id": "1"}) for serde in (spaced, compact, other)]
    assert datas[0] == datas[1]
    assert datas[2] is not None
    assert datas[2][:5] != datas[0][:5]  # type: ignore[index]
    latest = avro(
        _ID,
        "mock://notation",
        is_key=True,
        serializer={"use.latest.version": True, "auto.register.schemas": False},
    )
    assert latest.serialize("in", {"id": "1"}) == datas[2]


def test_keys_do_not_depend_on_the_order_of_dicts(registry: SchemaRegistry) -> None:
    """Equal dicts are one key; those of values keep their order."""
    numbers = avro({"type": "map", "values": "int"}, registry.url, is_key=True)
    json_key = json_schema(_JSON, registry.url, is_key=True)
    for serde in (numbers, json_key):
        a, b = ({"a": 1, "user": 2}, {"user": 2, "a": 1}) if serde is numbers else _in_two_orders()
        assert serde.serialize("in", a) == serde.serialize("in", b)
    first, second = _in_two_orders()
    value = json_schema(_JSON, registry.url)
    assert value.serialize("in", first) != value.serialize("in", second)


def _in_two_orders() -> tuple[dict[str, Any], dict[str, Any]]:
    return (
        {"user": "alice", "amount": 5, "in": [{"a": 1, "b": 2}]},
        {"in": [{"b": 2, "a": 1}], "amount": 5, "user": "alice"},
    )


def test_protobuf_keys_with_maps_are_refused(registry: SchemaRegistry) -> None:
    """Their entries are written in any order."""
    from google.protobuf.struct_pb2 import ListValue

    with pytest.raises(ValueError, match=r"map google\.protobuf\.Struct\.fields"):
        protobuf(ListValue, registry.url, is_key=True)
    assert protobuf(ListValue, registry.url).name == "protobuf(ListValue)"


@pytest.mark.parametrize("number", range(2), ids=["avro", "json_schema"])
def test_counts_by_key_with_a_mock_registry(number: int) -> None:
    """Equal keys are counted together in the test driver, and are one row of the store."""
    make, key = key_serdes(f"mock://counts-{number}")[number]
    serde = make()
    builder = StreamsBuilder()
    counts = builder.stream("in", key=serde, value=STRING).group_by_key().count(store="c")
    counts.to_stream().to("out", key=serde, value=LONG)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=serde, value=STRING)
        for _ in range(3):
            topic.pipe_input(key, "x")
        out = driver.create_output_topic("out", key=serde, value=LONG)
        assert out.read_values() == [1, 2, 3]
        assert len(list(driver.get_state_store("c").all())) == 1
