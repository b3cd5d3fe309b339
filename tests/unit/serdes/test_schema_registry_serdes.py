"""Avro, Protobuf and JSON Schema with a schema registry: bytes, subjects, pickling, errors."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from support.machine.http_server import HttpRequest, http_server

from millstream import StreamsBuilder
from millstream.errors import SerializationError
from millstream.serdes import LONG, STRING, Serde, avro, json_schema, protobuf
from millstream.testing import TopologyTestDriver


class SchemaRegistry:
    """The registered schemas.

    Attributes:
        schemas: every schema by its id.
        subjects: the ids of each subject, by version, oldest first.
        requests: the method and path of each request.
        shares_ids: whether a schema has one id in all subjects of a context.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.url = ""
        self.shares_ids = True

    def register(self, subject: str, schema: dict[str, Any]) -> dict[str, Any]:
        """Register a schema under a subject; its id is the same in all subjects."""
        kept: dict[str, Any] = {
            key: schema[key] for key in ("schema", "schemaType") if key in schema
        }
        candidates = self.schemas if self.shares_ids else self.subjects.get(subject, [])
        known = [number for number in candidates if self.schemas[number] == kept]
        number = known[0] if known else len(self.schemas) + 1
        self.schemas[number] = kept
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return self.described(subject, number)

    def described(self, subject: str, number: int) -> dict[str, Any]:
        """A registered schema in the registry's response format."""
        version = self.subjects[subject].index(number) + 1
        return {"subject": subject, "version": version, "id": number, **self.schemas[number]}

    def answer(self, method: str, path: str, body: Any) -> dict[str, Any] | None:
        """Answer a request; None means not found."""
        self.requests.append(f"{method} {path}")
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["subjects", subject, "versions"] if method == "POST":
                return self.register(subject, body)
            case ["subjects", subject] if method == "POST" and subject in self.subjects:
                for number in self.subjects[subject]:
                    if self.schemas[number]["schema"] == body["schema"]:
                        return self.described(subject, number)
            case ["schemas", "ids", number] if int(number) in self.schemas:
                return self.schemas[int(number)]
        return None


@contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    """Run a registry on a free port."""
    registry = SchemaRegistry()

    def respond(request: HttpRequest) -> tuple[int, bytes]:
        body = json.loads(request.body) if request.body else None
        found = registry.answer(request.method, urlsplit(request.path).path, body)
        if found is None:
            return 404, b'{"error_code": 40401, "message": "Not found."}'
        return 200, json.dumps(found).encode()

    with http_server(respond, "application/vnd.schemaregistry.v1+json") as registry.url:
        yield registry


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


def make_order(fields: dict[str, Any]) -> Order:
    return Order(**fields)


def order_message() -> type[Any]:
    """The class that protoc would generate for a message Order."""
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
    """Confluent's wire format: a zero byte, then the schema id."""
    return b"\0" + number.to_bytes(4, "big")


def test_avro_bytes(registry: SchemaRegistry) -> None:
    """The magic byte, the id, then Avro. The subject is named after the topic."""
    serde = avro(_AVRO, registry.url)
    data = serde.serialize("orders", _ORDER)
    assert data == header(1) + b"\x0aalice\x0a"
    assert serde.deserialize("orders", data) == _ORDER
    assert registry.subjects == {"orders-value": [1]}


def test_keys_have_their_own_subject(registry: SchemaRegistry) -> None:
    """A serde for keys registers under `-key`. Primitive schemas are allowed."""
    serde = avro("string", registry.url, is_key=True)
    assert serde.serialize("orders", "k") == header(1) + b"\x02k"
    assert list(registry.subjects) == ["orders-key"]


def test_avro_reads_data_of_an_older_schema(registry: SchemaRegistry) -> None:
    """The reader's schema supplies defaults for fields that the writer lacked."""
    data = avro(_AVRO, registry.url).serialize("orders", _ORDER)
    note = {"name": "note", "type": "string", "default": "-"}
    newer = {**_AVRO, "fields": [*_AVRO["fields"], note]}
    assert avro(newer, registry.url).deserialize("orders", data) == {**_ORDER, "note": "-"}
    assert avro(None, registry.url).deserialize("orders", data) == _ORDER


@pytest.mark.parametrize("maker", [avro, json_schema])
def test_custom_value_types(registry: SchemaRegistry, maker: Callable[..., Any]) -> None:
    """`to_dict` and `from_dict` convert between the user's type and dicts."""
    schema = _AVRO if maker is avro else _JSON
    serde = maker(schema, registry.url, to_dict=asdict, from_dict=make_order)
    data = serde.serialize("orders", Order("bob", 7))
    assert serde.deserialize("orders", data) == Order("bob", 7)


def test_json_schemas_are_validated(registry: SchemaRegistry) -> None:
    """JSON after the id. Data that does not match the schema is rejected in both directions."""
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
    """The index of the message in its file is between the id and the message."""
    message = order_message()
    serde = protobuf(message, registry.url)
    order = message(user="alice", amount=5)
    data = serde.serialize("orders", order)
    assert data == header(1) + b"\0" + order.SerializeToString()
    assert serde.deserialize("orders", data) == order
    assert serde.name == "protobuf(Order)"


def test_a_serde_is_pickled_without_its_connection(registry: SchemaRegistry) -> None:
    """After use as well. The copy is equal and serializes identically."""
    serde = avro(_AVRO, {"url": registry.url}, serializer={"normalize.schemas": True})
    data = serde.serialize("orders", _ORDER)
    copied = pickle.loads(pickle.dumps(serde))
    assert copied == serde
    assert copied.serialize("orders", _ORDER) == data
    assert avro(_AVRO, registry.url) != serde


def test_a_schema_is_requested_once(registry: SchemaRegistry) -> None:
    """For all records and all serdes of a process."""
    serdes = [avro(_AVRO, registry.url) for _ in range(2)]
    payloads = [data for serde in serdes for data in serde.serialize_many("orders", [_ORDER] * 50)]
    assert len(set(payloads)) == 1
    assert avro(_AVRO, registry.url).deserialize_many("orders", payloads) == [_ORDER] * 100
    assert registry.requests.count("POST /subjects/orders-value/versions") == 1


def test_settings_reach_the_serializer(registry: SchemaRegistry) -> None:
    """Without automatic registration, the registry rejects an unknown schema."""
    serde = avro(_AVRO, registry.url, serializer={"auto.register.schemas": False})
    with pytest.raises(SerializationError, match=r"schema registry at http://127\.0\.0\.1.*404"):
        serde.serialize("orders", _ORDER)
    registry.register("orders-value", {"schema": avro_text(registry)})
    assert serde.serialize("orders", _ORDER) == header(1) + b"\x0aalice\x0a"


def avro_text(registry: SchemaRegistry) -> str:
    """The schema's text as sent by the serializer."""
    with schema_registry() as other:
        avro(_AVRO, other.url).serialize("orders", _ORDER)
        return str(other.schemas[1]["schema"])


def test_an_unreachable_registry() -> None:
    """The error names the registry, not the data, as the cause."""
    settings = {"url": "http://127.0.0.1:1", "max.retries": 0, "retries.wait.ms": 1}
    with pytest.raises(SerializationError, match=r"registry at http://127\.0\.0\.1:1 rejected"):
        avro(_AVRO, settings).serialize("orders", _ORDER)
    with pytest.raises(SerializationError, match=r"registry at http://127\.0\.0\.1:1 rejected"):
        avro(_AVRO, settings).deserialize("orders", header(9) + b"x")


def test_data_of_another_format(registry: SchemaRegistry) -> None:
    """Bytes without the magic byte are reported as invalid data."""
    with pytest.raises(SerializationError, match="The data was probably written in another"):
        avro(_AVRO, registry.url).deserialize("orders", b"{}")


def test_writing_without_a_schema(registry: SchemaRegistry) -> None:
    """`avro(None)` only reads."""
    with pytest.raises(SerializationError, match="pass a schema for writing"):
        avro(None, registry.url).serialize("orders", _ORDER)


@pytest.mark.parametrize(
    ("maker", "extra"),
    [(avro, "avro"), (json_schema, "json-schema"), (protobuf, "protobuf")],
)
def test_a_missing_extra_is_named(
    maker: Callable[..., Serde[Any]], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error explains what to install, when the serde is created."""

    def without(name: str) -> Any:
        if name.startswith("confluent_kafka.schema_registry"):
            raise ImportError("No module named 'httpx2'")
        return import_module(name)

    monkeypatch.setattr("millstream.serdes._registry.import_module", without)
    with pytest.raises(ImportError, match=rf"pip install 'millstream\[{extra}\]'"):
        maker("{}", "http://127.0.0.1:1")


def test_in_a_topology(registry: SchemaRegistry) -> None:
    """Read as Avro and counted; the store's serdes are registered under the name of the
    changelog."""
    orders = avro(_AVRO, registry.url, to_dict=asdict, from_dict=make_order)
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
    """A factory of a key serde and a key, for each format."""
    message = order_message()
    return [
        (lambda: avro(_ID, registry, is_key=True), {"id": "1"}),
        (lambda: json_schema(_JSON_ID, registry, is_key=True), {"id": "1"}),
        (lambda: protobuf(message, registry, is_key=True), message(user="alice")),
    ]


@pytest.mark.parametrize("number", range(3), ids=["avro", "json_schema", "protobuf"])
@pytest.mark.parametrize("is_mock", [True, False], ids=["mock", "real"])
def test_equal_keys_have_equal_bytes(registry: SchemaRegistry, is_mock: bool, number: int) -> None:
    """For all instances, all topics, and any earlier records."""
    url = f"mock://equal-keys-{number}" if is_mock else registry.url
    make, key = key_serdes(url)[number]
    first, second = make(), make()
    topics = ["in", "changelog", "in", "out", "changelog"]
    payloads = [serde.serialize(topic, key) for topic in topics for serde in (first, second)]
    payloads.append(
        pickle.loads(pickle.dumps(first)).serialize("in", key) if number < 2 else payloads[0]
    )
    assert len(set(payloads)) == 1
    assert second.deserialize("elsewhere", payloads[0]) == key


@pytest.mark.parametrize("number", range(3), ids=["avro", "json_schema", "protobuf"])
def test_schema_ids_of_subjects(registry: SchemaRegistry, number: int) -> None:
    """If the registry uses another id for each subject, the keys of a topic have the topic's id."""
    registry.shares_ids = False
    make, key = key_serdes(registry.url)[number]
    serde = make()
    for topic, expected in [("in", 1), ("changelog", 2), ("in", 1), ("changelog", 2)]:
        data = serde.serialize(topic, key)
        assert data is not None
        assert data[:5] == header(expected)


def test_a_mock_registry_normalizes_schemas() -> None:
    """Like real registries. A different schema has a different id."""
    spaced = avro(json.dumps(_ID, indent=2), "mock://notation", is_key=True)
    compact = avro(_ID, "mock://notation", is_key=True)
    other = avro({**_ID, "name": "Other"}, "mock://notation", is_key=True)
    payloads = [serde.serialize("in", {"id": "1"}) for serde in (spaced, compact, other)]
    assert payloads[0] == payloads[1]
    assert payloads[2] is not None
    assert payloads[2][:5] != payloads[0][:5]  # type: ignore[index]
    latest = avro(
        _ID,
        "mock://notation",
        is_key=True,
        serializer={"use.latest.version": True, "auto.register.schemas": False},
    )
    assert latest.serialize("in", {"id": "1"}) == payloads[2]


def test_keys_do_not_depend_on_the_order_of_dicts(registry: SchemaRegistry) -> None:
    """Equal dicts are equal keys; dicts in values keep their order."""
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


def test_protobuf_keys_with_maps_are_rejected(registry: SchemaRegistry) -> None:
    """The order of map entries is undefined."""
    from google.protobuf.struct_pb2 import ListValue

    with pytest.raises(ValueError, match=r"map google\.protobuf\.Struct\.fields"):
        protobuf(ListValue, registry.url, is_key=True)
    assert protobuf(ListValue, registry.url).name == "protobuf(ListValue)"


@pytest.mark.parametrize("number", range(2), ids=["avro", "json_schema"])
def test_counts_by_key_with_a_mock_registry(number: int) -> None:
    """In the test driver, equal keys are counted together, in one row of the store."""
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
