"""Selection of the C extension, and its handling of invalid arguments."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from importlib import import_module
from importlib.abc import MetaPathFinder
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from support.strictness import needed_speedups

from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError, RecordRefusedError
from millstream.kafka.clients.record_consumer import RecordConsumer
from millstream.kafka.clients.record_producer import RecordProducer
from millstream.kafka.speedups import (
    Speedups,
    chosen_speedups,
    describe_speedups,
    missing_advice,
)
from millstream.native import EXTENSION_VERSION, compiled, warn_once
from millstream.state.caches.cache_implementation import cache_implementation

MODULE = "millstream.native.library"
#: No broker is configured, so missing brokers are not logged.
WITHOUT_BROKER: dict[str, Any] = {"log_level": 0}


def test_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is optional. If it is required by the setting, the error explains how to install it."""
    monkeypatch.setitem(sys.modules, MODULE, None)
    assert chosen_speedups(None) is None
    assert chosen_speedups(False) is None
    assert describe_speedups(None) == (
        "one by one, since the C extension is not part of this installation"
    )
    for make in (RecordConsumer, RecordProducer):
        with pytest.raises(ConfigError, match=r"is not part of this installation.*pip install"):
            make({**WITHOUT_BROKER, "group.id": "g"}, speedups=True)


def test_an_unusable_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log and the error contain the reason."""
    broken = SimpleNamespace(
        VERSION=EXTENSION_VERSION,
        UNAVAILABLE_BECAUSE="librdkafka is odd",
        PLUGIN="/x.so",
        attach=None,
    )
    monkeypatch.setitem(sys.modules, MODULE, broken)
    assert chosen_speedups(None) is None
    assert describe_speedups(None).endswith("is not usable: librdkafka is odd")
    with pytest.raises(ConfigError, match="librdkafka is odd"):
        chosen_speedups(True)
    broken.UNAVAILABLE_BECAUSE = None
    assert describe_speedups(None) == "as columns, by the C extension"
    assert describe_speedups(False) == "one by one, since speedups=False"
    assert chosen_speedups(False) is None
    broken.PLUGIN = "/a;b.so"
    assert describe_speedups(None).endswith("its path contains a ';'")


class FailingImport(MetaPathFinder):
    """Raises an error when the extension is imported."""

    def __init__(self, error: ImportError) -> None:
        self._error = error

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == MODULE:
            raise self._error


def test_an_extension_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, if it was built for another Python or with other libraries."""
    for error, reason in (
        (ImportError("undefined symbol: PyOdd"), "cannot be loaded: undefined symbol: PyOdd"),
        (ModuleNotFoundError("no x", name="x"), "cannot be loaded: no x"),
    ):
        monkeypatch.delitem(sys.modules, MODULE, raising=False)
        monkeypatch.setattr(sys, "meta_path", [FailingImport(error), *sys.meta_path])
        assert describe_speedups(None).endswith(reason)
        assert chosen_speedups(None) is None
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("attribute", "value", "reason"),
    [
        ("sys.platform", "win32", "does not support Windows"),
        ("sys.implementation", SimpleNamespace(name="pypy"), "does not support pypy"),
    ],
)
def test_a_platform_without_the_extension(
    monkeypatch: pytest.MonkeyPatch, attribute: str, value: object, reason: str
) -> None:
    """The warning gives the reason, and no advice that would not help."""
    monkeypatch.setitem(sys.modules, MODULE, None)
    monkeypatch.setattr(f"millstream.native.{attribute}", value)
    warning = missing_advice(None)
    assert warning is not None
    assert reason in warning
    assert "pip install" not in warning


def test_a_free_threaded_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no stable ABI, so it takes the wheel without the extension."""
    monkeypatch.setitem(sys.modules, MODULE, None)
    monkeypatch.setattr("millstream.native.sysconfig.get_config_var", {"Py_GIL_DISABLED": 1}.get)
    warning = missing_advice(None)
    assert warning is not None
    assert "does not support free-threaded builds of Python" in warning


def test_the_warning_is_only_given_if_the_extension_is_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)
    warning = missing_advice(None)
    assert warning is not None
    assert "pip install" in warning
    assert missing_advice(False) is None


def test_the_setting() -> None:
    """Text becomes a bool, and None stays the default."""
    needed: dict[str, Any] = {"application_id": "a", "bootstrap_servers": "b:1"}
    assert StreamsConfig(**needed).speedups is None
    assert StreamsConfig(**needed, speedups=False).speedups is False
    properties = {"application.id": "a", "bootstrap.servers": "b:1", "speedups": "true"}
    assert StreamsConfig.from_properties(properties).speedups is True


@pytest.fixture
def speedups() -> Speedups:
    return needed_speedups()


@pytest.fixture
def producer(speedups: Speedups) -> Iterator[RecordProducer]:
    made = RecordProducer(WITHOUT_BROKER, speedups=True)
    yield made
    made.close(0)


VALID_COLUMNS: dict[str, Any] = {
    "partitions": 0,
    "keys": [b"k", None, b"", b"l"],
    "values": [b"v", None, b"", b"w"],
    "timestamps": [0, 1, 2, 3],
    "headers": [None, (), [("h", b"1"), ("h", None)], None],
}


@pytest.mark.parametrize(
    "invalid",
    [
        {"keys": [b"k", None, 7, b"l"]},
        {"values": [b"k", None, bytearray(b"x"), b"l"]},
        {"timestamps": [1, 1, 1.5, 1]},
        {"timestamps": [1, 1, None, 1]},
        {"timestamps": [1, 1, 1 << 63, 1]},
        {"partitions": [0, 0, 1 << 40, 0]},
        {"partitions": [0, 0, "0", 0]},
        {"headers": [None, None, [("h",)], None]},
        {"headers": [None, None, [("h", 1)], None]},
        {"headers": [None, None, [(b"h", b"")], None]},
        {"headers": [None, None, ["hv"], None]},
        {"headers": [None, None, 3, None]},
        {"headers": [None, None, [("\ud800", b"")], None]},
    ],
    ids=lambda invalid: str(*invalid),
)
def test_the_error_of_an_invalid_record_contains_its_index(
    producer: RecordProducer, invalid: dict[str, Any]
) -> None:
    """The records before it are handed over, those after it are not."""
    with pytest.raises(RecordRefusedError, match="client rejected it") as raised:
        producer.send_many("t", **{**VALID_COLUMNS, **invalid})
    assert (raised.value.index, raised.value.topic) == (2, "t")
    assert producer.unacknowledged == 2


def test_columns_of_different_lengths_are_rejected(producer: RecordProducer) -> None:
    """Without reading beyond the end of a list."""
    for invalid in ({"headers": [None]}, {"partitions": [0, 0]}):
        with pytest.raises(RecordRefusedError, match="another column has"):
            producer.send_many("t", **{**VALID_COLUMNS, **invalid})
    assert producer.unacknowledged == 0


def test_other_sequences_are_accepted(producer: RecordProducer) -> None:
    """Tuples, ranges, text and views."""
    keys: Any = ("k", memoryview(b""))
    producer.send_many("t", (0, None), keys, (b"a", b"b"), range(2))
    assert producer.unacknowledged == 2


def test_an_invalid_topic_name(producer: RecordProducer) -> None:
    """It is rejected like an invalid record."""
    with pytest.raises(RecordRefusedError):
        producer.send("t" * 600, 0, None, b"v", 1)


def test_references_are_not_leaked(producer: RecordProducer) -> None:
    """Neither to accepted nor to rejected values."""
    key, value, name = b"key %d" % id(producer), b"value %d" % id(producer), f"h{id(producer)}"
    header = (name, value)
    columns: dict[str, Any] = {
        "partitions": [0] * 20,
        "keys": [key] * 20,
        "values": [value] * 19 + [3],
        "timestamps": [1 << 40] * 20,
        "headers": [[header]] * 20,
    }

    def counts() -> list[int]:
        return [sys.getrefcount(each) for each in (key, value, name, header, *columns.values())]

    before = counts()
    for _ in range(5):
        with pytest.raises(RecordRefusedError):
            producer.send_many("t", **columns)
    assert counts() == before
    assert producer.unacknowledged == 95


def test_a_closed_client_raises(speedups: Speedups) -> None:
    """Whether it was closed by its owner or through confluent-kafka's object."""
    consumer = RecordConsumer({**WITHOUT_BROKER, "group.id": "g"}, speedups=True)
    assert consumer.poll_columns(10, 10) == {}
    consumer.close()
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll_columns(10, 10)
    client, native = speedups.create(Producer, WITHOUT_BROKER)
    native.produce_columns("t", 0, [None], [b"v"], [1], None, 0)
    native.close()
    native.close()
    assert native.failed == 0
    for call in (
        native.take_failures,
        native.acked_offsets,
        native.reset_deliveries,
        native.open_queue,
    ):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    with pytest.raises(RuntimeError, match="closed"):
        native.produce_columns("t", 0, [None], [b"v"], [1], None, 0)
    with pytest.raises(RuntimeError, match="closed"):
        native.read_columns(1, 0)
    assert len(client) == 1


def test_only_clients_with_the_plugin_can_be_attached(speedups: Speedups) -> None:
    """And only once; never a client that was created elsewhere."""
    client, _ = speedups.create(Producer, WITHOUT_BROKER)
    for other_client in (client, Producer(WITHOUT_BROKER)):
        with pytest.raises(RuntimeError, match="not created a client with the plugin"):
            speedups.attach(other_client)


def test_reading_stops_at_a_failing_header(speedups: Speedups) -> None:
    """No Python code runs with an exception pending."""
    read: list[Any] = []

    class Pair(tuple[str, bytes]):
        def __getitem__(self, index: Any) -> Any:
            read.append(index)
            raise ValueError("no field")

    _, native = speedups.create(Producer, WITHOUT_BROKER)
    with pytest.raises(ValueError, match="no field"):
        native.produce_columns("t", 0, [b"k"], [b"v"], [1], [[Pair(("a", b"b"))]], 0)
    assert read == [0]


def test_consumers_and_producers_reject_calls_of_the_other(speedups: Speedups) -> None:
    """A consumer would silently lose records, and a producer has no queue to read."""
    _, consumer = speedups.create(Consumer, {**WITHOUT_BROKER, "group.id": "g"})
    with pytest.raises(RuntimeError, match="only producers can send records"):
        consumer.produce_columns("t", 0, [None], [b"v"], [1], None, 0)
    consumer.open_queue()
    with pytest.raises(ValueError, match="partition -1 is negative"):
        consumer.forward("t", -1)
    _, producer = speedups.create(Producer, WITHOUT_BROKER)
    with pytest.raises(RuntimeError, match="only consumers can read records"):
        producer.open_queue()
    consumer.close()


def test_an_extension_of_another_version(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither clients nor caches use it, and it is logged once."""
    module = import_module(MODULE) if chosen_speedups(None) else SimpleNamespace()
    for version, shown in (("0.0.9", "0.0.9"), (None, "unknown")):
        caplog.clear()
        warn_once.cache_clear()
        other = SimpleNamespace(**{**vars(module), "VERSION": version})
        monkeypatch.setitem(sys.modules, MODULE, other)
        reason = f"the installed C extension has version {shown}, but this Millstream needs"
        assert chosen_speedups(None) is None
        assert describe_speedups(None).startswith(f"one by one, since {reason}")
        with pytest.raises(ConfigError, match=shown):
            chosen_speedups(True)
        assert not cache_implementation(None).is_compiled
        assert compiled(list, "EntryTable") is list
        assert [reason in message for message in caplog.messages] == [True]
    warn_once.cache_clear()


def test_an_unreferenced_consumer_is_garbage_collected(speedups: Speedups) -> None:
    """The garbage collector sees reference cycles through callbacks in the C extension."""
    consumer = RecordConsumer({**WITHOUT_BROKER, "group.id": "g"}, speedups=True)
    gone = weakref.ref(consumer)
    del consumer
    gc.collect()
    assert gone() is None


def test_clients_that_end_with_unsent_records(speedups: Speedups) -> None:
    """librdkafka reports the loss of these records after the client has ended."""
    for number in range(30):
        client, native = speedups.create(Producer, WITHOUT_BROKER)
        native.produce_columns("t", None, [b"k"] * 50, [b"v"] * 50, [1] * 50, None, 0)
        if number % 2:
            native.close()
        del client, native
