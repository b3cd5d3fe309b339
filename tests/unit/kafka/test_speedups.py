"""Whether the C extension is used, and what it does with what nobody should give it."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from support.speedups import needed_speedups

from millstream.compiled import EXTENSION_VERSION, compiled, warn_once
from millstream.config import StreamsConfig
from millstream.errors import ConfigError, RecordRefusedError
from millstream.kafka.data.consumer import RecordConsumer
from millstream.kafka.data.producer import RecordProducer
from millstream.kafka.speedups import Speedups, chosen_speedups, told_speedups
from millstream.state.caches.cache_code import cache_code

MODULE = "millstream_speedups"
#: No broker, whose absence would be reported beside the records.
NOBODY: dict[str, Any] = {"log_level": 0}


def test_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is missed, unless it is insisted on: then it is said what to do."""
    monkeypatch.setitem(sys.modules, MODULE, None)
    assert chosen_speedups(None) is None
    assert chosen_speedups(False) is None
    assert told_speedups(None) == "one by one, since millstream-speedups is not installed"
    for make in (RecordConsumer, RecordProducer):
        with pytest.raises(ConfigError, match=r"is not installed.*pip install ./speedups"):
            make({**NOBODY, "group.id": "g"}, speedups=True)


def test_an_extension_that_is_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is told, in the log and by the error."""
    broken = SimpleNamespace(
        VERSION=EXTENSION_VERSION,
        UNAVAILABLE_BECAUSE="librdkafka is odd",
        PLUGIN="/x.so",
        attach=None,
    )
    monkeypatch.setitem(sys.modules, MODULE, broken)
    assert chosen_speedups(None) is None
    assert told_speedups(None).endswith("cannot be used: librdkafka is odd")
    with pytest.raises(ConfigError, match="librdkafka is odd"):
        chosen_speedups(True)
    broken.UNAVAILABLE_BECAUSE = None
    assert told_speedups(None) == "as columns"
    assert told_speedups(False) == "one by one, since speedups=False"
    assert chosen_speedups(False) is None
    broken.PLUGIN = "/a;b.so"
    assert told_speedups(None).endswith("its path contains a ';'")


def test_an_extension_that_does_not_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For another Python, or a machine with other libraries."""
    package = tmp_path / MODULE
    package.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    for error, told in (
        ("ImportError('undefined symbol: PyOdd')", "cannot be loaded: undefined symbol: PyOdd"),
        ("ModuleNotFoundError('no x', name='x')", "cannot be loaded: no x"),
    ):
        (package / "__init__.py").write_text(f"raise {error}\n")
        monkeypatch.delitem(sys.modules, MODULE, raising=False)
        assert told_speedups(None).endswith(told)
        assert chosen_speedups(None) is None


def test_the_setting() -> None:
    """As text it is a bool, and None stays the default."""
    needed: dict[str, Any] = {"application_id": "a", "bootstrap_servers": "b:1"}
    assert StreamsConfig(**needed).speedups is None
    assert StreamsConfig(**needed, speedups=False).speedups is False
    told = {"application.id": "a", "bootstrap.servers": "b:1", "speedups": "true"}
    assert StreamsConfig.from_properties(told).speedups is True


@pytest.fixture
def speedups() -> Speedups:
    return needed_speedups()


@pytest.fixture
def producer(speedups: Speedups) -> Iterator[RecordProducer]:
    made = RecordProducer(NOBODY, speedups=True)
    yield made
    made.close(0)


FINE: dict[str, Any] = {
    "partitions": 0,
    "keys": [b"k", None, b"", b"l"],
    "values": [b"v", None, b"", b"w"],
    "timestamps": [0, 1, 2, 3],
    "headers": [None, (), [("h", b"1"), ("h", None)], None],
}


@pytest.mark.parametrize(
    "wrong",
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
    ids=lambda wrong: str(*wrong),
)
def test_what_cannot_be_written_is_told_with_its_index(
    producer: RecordProducer, wrong: dict[str, Any]
) -> None:
    """The records before it are handed over, those after it are not."""
    with pytest.raises(RecordRefusedError, match="cannot take it") as raised:
        producer.send_many("t", **{**FINE, **wrong})
    assert (raised.value.index, raised.value.topic) == (2, "t")
    assert producer.unacknowledged == 2


def test_columns_of_other_lengths(producer: RecordProducer) -> None:
    """Nothing is read behind the end of a list."""
    for wrong in ({"headers": [None]}, {"partitions": [0, 0]}):
        with pytest.raises(RecordRefusedError, match="another column has"):
            producer.send_many("t", **{**FINE, **wrong})
    assert producer.unacknowledged == 0


def test_sequences_of_any_kind(producer: RecordProducer) -> None:
    """Tuples, ranges, text and views are taken as they always were."""
    keys: Any = ("k", memoryview(b""))
    producer.send_many("t", (0, None), keys, (b"a", b"b"), range(2))
    assert producer.unacknowledged == 2


def test_an_odd_topic(producer: RecordProducer) -> None:
    """No topic is named like that: refused as a record is."""
    with pytest.raises(RecordRefusedError):
        producer.send("t" * 600, 0, None, b"v", 1)


def test_no_reference_is_kept(producer: RecordProducer) -> None:
    """Neither to what was taken nor to what was refused."""
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


def test_a_closed_client_is_not_used(speedups: Speedups) -> None:
    """Whoever closes it: its owner, or confluent-kafka's object beneath."""
    consumer = RecordConsumer({**NOBODY, "group.id": "g"}, speedups=True)
    assert consumer.poll_columns(10, 10) == {}
    consumer.close()
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll_columns(10, 10)
    client, native = speedups.create(Producer, NOBODY)
    native.produce_columns("t", 0, [None], [b"v"], [1], None, 0)
    native.close()
    native.close()
    assert native.failed == 0
    for call in (native.take_failures, native.acked_offsets, native.forget, native.open_queue):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    with pytest.raises(RuntimeError, match="closed"):
        native.produce_columns("t", 0, [None], [b"v"], [1], None, 0)
    with pytest.raises(RuntimeError, match="closed"):
        native.read_columns(1, 0)
    assert len(client) == 1


def test_only_a_client_with_the_plugin_is_attached_to(speedups: Speedups) -> None:
    """And only once: never to one that somebody else has made."""
    client, _ = speedups.create(Producer, NOBODY)
    for stranger in (client, Producer(NOBODY)):
        with pytest.raises(RuntimeError, match="no client with the plugin"):
            speedups.attach(stranger)


def test_a_header_that_fails_is_not_read_on(speedups: Speedups) -> None:
    """No Python is called with an exception pending."""
    read: list[Any] = []

    class Pair(tuple[str, bytes]):
        def __getitem__(self, index: Any) -> Any:
            read.append(index)
            raise ValueError("no field")

    _, native = speedups.create(Producer, NOBODY)
    with pytest.raises(ValueError, match="no field"):
        native.produce_columns("t", 0, [b"k"], [b"v"], [1], [[Pair(("a", b"b"))]], 0)
    assert read == [0]


def test_each_client_does_only_its_own(speedups: Speedups) -> None:
    """Records given to a consumer would be lost without a word, and a producer has none to read."""
    _, consumer = speedups.create(Consumer, {**NOBODY, "group.id": "g"})
    with pytest.raises(RuntimeError, match="only a producer writes records"):
        consumer.produce_columns("t", 0, [None], [b"v"], [1], None, 0)
    consumer.open_queue()
    with pytest.raises(ValueError, match="not negative, as -1 is"):
        consumer.forward("t", -1)
    _, producer = speedups.create(Producer, NOBODY)
    with pytest.raises(RuntimeError, match="only a consumer has a queue"):
        producer.open_queue()
    consumer.close()


def test_an_extension_of_another_version(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not used, neither by clients nor by caches, and the log says so once."""
    module = import_module(MODULE) if chosen_speedups(None) else SimpleNamespace()
    for version, told in (("0.0.9", "0.0.9"), (None, "an older version")):
        caplog.clear()
        warn_once.cache_clear()
        other = SimpleNamespace(**{**vars(module), "VERSION": version})
        monkeypatch.setitem(sys.modules, MODULE, other)
        why = f"the installed millstream-speedups is of {told}, and this Millstream needs"
        assert chosen_speedups(None) is None
        assert told_speedups(None).startswith(f"one by one, since {why}")
        with pytest.raises(ConfigError, match=told):
            chosen_speedups(True)
        assert not cache_code(None).is_compiled
        assert compiled(list, "EntryTable") is list
        assert [why in message for message in caplog.messages] == [True]
    warn_once.cache_clear()


def test_a_consumer_that_is_forgotten_goes(speedups: Speedups) -> None:
    """Aim: a circle of callbacks through the C part is seen by the garbage collector."""
    consumer = RecordConsumer({**NOBODY, "group.id": "g"}, speedups=True)
    gone = weakref.ref(consumer)
    del consumer
    gc.collect()
    assert gone() is None


def test_clients_that_end_with_records(speedups: Speedups) -> None:
    """Aim: librdkafka reports what is lost with a client after that has ended."""
    for number in range(30):
        client, native = speedups.create(Producer, NOBODY)
        native.produce_columns("t", None, [b"k"] * 50, [b"v"] * 50, [1] * 50, None, 0)
        if number % 2:
            native.close()
        del client, native
