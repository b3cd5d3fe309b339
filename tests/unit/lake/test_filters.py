"""Filters say which keys and windows are read: never fewer than those for which they hold."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import datasource as spark

from millstream.errors import ConfigError
from millstream.kafka.partitioner import partition_for
from millstream.lake.filters import Bounds, Wanted, wanted_by
from millstream.lake.options import plan_of_options
from millstream.lake.position import as_json, checked_position, from_json
from millstream.lake.store_table import StoreTable, Times
from millstream.serdes import LONG, STRING, UUID, json_of

_AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)
_AT_MS = 1_767_323_045_678
_KEY = ("key",)
_START = ("window_start",)


def table(key: Any = STRING, shape: Any = "window") -> StoreTable:
    return StoreTable("s", "t", shape, key, LONG, Times(60_000))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], Wanted()),
        ([spark.EqualTo(_KEY, "a")], Wanted(frozenset({b"a"}))),
        ([spark.EqualNullSafe(_KEY, "a")], Wanted(frozenset({b"a"}))),
        ([spark.In(_KEY, ("a", "b"))], Wanted(frozenset({b"a", b"b"}))),
        ([spark.In(_KEY, ("a", None)), spark.EqualTo(_KEY, "b")], Wanted(frozenset())),
        ([spark.Not(spark.EqualTo(_KEY, "a"))], Wanted()),
        ([spark.GreaterThan(_KEY, "a")], Wanted()),
        ([spark.EqualTo(("value",), 1)], Wanted()),
        ([spark.GreaterThanOrEqual(_START, _AT)], Wanted(starts=Bounds(_AT_MS, None))),
        ([spark.LessThan(_START, _AT)], Wanted(starts=Bounds(None, _AT_MS))),
        (
            [spark.GreaterThan(("window_end",), _AT), spark.LessThanOrEqual(("window_end",), _AT)],
            Wanted(ends=Bounds(_AT_MS, _AT_MS)),
        ),
        ([spark.EqualTo(_START, _AT)], Wanted(starts=Bounds(_AT_MS, _AT_MS))),
        ([spark.IsNotNull(_KEY)], Wanted()),
    ],
)
def test_what_filters_leave(filters: list[spark.Filter], expected: Wanted) -> None:
    """Equality of keys, and bounds of windows; whatever else leaves everything."""
    assert wanted_by(filters, table()) == expected


def test_keys_are_compared_as_bytes_only_where_that_is_the_same() -> None:
    """A key of another type leaves everything, one that cannot be a key nothing."""
    assert wanted_by([spark.EqualTo(_KEY, 1.5)], table(json_of(float))) == Wanted()
    seven = frozenset({(7).to_bytes(8, "big")})
    assert wanted_by([spark.EqualTo(_KEY, 7)], table(LONG)).keys == seven
    assert wanted_by([spark.EqualTo(_KEY, "no uuid")], table(UUID)).keys == frozenset()
    assert wanted_by([spark.EqualTo(_START, _AT)], table(shape="key-value")) == Wanted()


def test_a_key_is_in_the_partition_of_its_bytes() -> None:
    """By Kafka's default partitioner, or in any."""
    wanted = Wanted(frozenset({b"a", b"b"}))
    expected = sorted({partition_for(b"a", 16), partition_for(b"b", 16)})
    assert wanted.partitions(16, is_partitioned=True) == expected
    assert wanted.partitions(3, is_partitioned=False) == [0, 1, 2]
    assert Wanted().partitions(3, is_partitioned=True) == [0, 1, 2]


def test_positions_are_text() -> None:
    """There and back; one of another topic, or from beyond its end, is refused."""
    text = as_json("t", {1: 7, 0: 41})
    assert text == '{"t":{"0":41,"1":7}}'
    assert from_json(text, "t", "it") == {0: 41, 1: 7}
    assert checked_position(text, {0: 41, 1: 9}, "t") == {0: 41, 1: 7}
    for ends, told in (({0: 40, 1: 9}, "ends at 40"), ({0: 50}, "has 2 partitions")):
        with pytest.raises(ConfigError, match=told):
            checked_position(text, ends, "t")
    with pytest.raises(ConfigError, match="offsets by partition of the topic u"):
        from_json(text, "u", "it")


def test_options_are_settings_and_serdes(tmp_path: Any) -> None:
    """Text becomes serdes, times and settings of Kafka's clients; a file has what is not shown."""
    secret = tmp_path / "client.properties"
    secret.write_text("# not shown\nsecurity.protocol = SASL_PLAINTEXT\n")
    plan = plan_of_options(
        {
            "application_id": "shop",
            "bootstrap_servers": "b:1",
            "store": "minutes",
            "key_serde": "UUID",
            "value_serde": "millstream.serdes:LONG",
            "kind": "window",
            "window_size_ms": "60000",
            "retention_ms": "100000",
            "startingOffsets": "latest",
            "partitioner": "none",
            "properties": str(secret),
            "kafka.request.timeout.ms": "1234",
        }
    )
    assert plan.table.topic == "shop-minutes-changelog"
    assert plan.table.key is UUID
    assert plan.table.value is LONG
    assert plan.table.times == Times(60_000, 99_999)
    assert plan.starting_offsets == "latest"
    assert not plan.is_partitioned
    settings = plan.config.client_settings("restore_consumer")
    assert settings["request.timeout.ms"] in (1234, "1234")
    assert settings["security.protocol"] == "SASL_PLAINTEXT"
