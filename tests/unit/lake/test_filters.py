"""Filters select the keys and windows to read, and never omit matching ones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import datasource as spark

from millstream.errors import ConfigError
from millstream.kafka.partitioner import partition_for
from millstream.lake.changelogs import as_json, from_json, parse_position
from millstream.lake.options import plan_from_options
from millstream.lake.row_filters import RowFilter, TimeRange, row_filter_of
from millstream.lake.store_table import StoreTable, StoreTimes
from millstream.serdes import LONG, STRING, UUID, json_of

_AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)
_AT_MS = 1_767_323_045_678
_KEY = ("key",)
_START = ("window_start",)


def table(key: Any = STRING, shape: Any = "window") -> StoreTable:
    return StoreTable("s", "t", shape, key, LONG, StoreTimes(60_000))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], RowFilter()),
        ([spark.EqualTo(_KEY, "a")], RowFilter(frozenset({b"a"}))),
        ([spark.EqualNullSafe(_KEY, "a")], RowFilter(frozenset({b"a"}))),
        ([spark.In(_KEY, ("a", "b"))], RowFilter(frozenset({b"a", b"b"}))),
        ([spark.In(_KEY, ("a", None)), spark.EqualTo(_KEY, "b")], RowFilter(frozenset())),
        ([spark.Not(spark.EqualTo(_KEY, "a"))], RowFilter()),
        ([spark.GreaterThan(_KEY, "a")], RowFilter()),
        ([spark.EqualTo(("value",), 1)], RowFilter()),
        ([spark.GreaterThanOrEqual(_START, _AT)], RowFilter(starts=TimeRange(_AT_MS, None))),
        ([spark.LessThan(_START, _AT)], RowFilter(starts=TimeRange(None, _AT_MS))),
        (
            [spark.GreaterThan(("window_end",), _AT), spark.LessThanOrEqual(("window_end",), _AT)],
            RowFilter(ends=TimeRange(_AT_MS, _AT_MS)),
        ),
        ([spark.EqualTo(_START, _AT)], RowFilter(starts=TimeRange(_AT_MS, _AT_MS))),
        ([spark.IsNotNull(_KEY)], RowFilter()),
    ],
)
def test_row_filters(filters: list[spark.Filter], expected: RowFilter) -> None:
    """Equality of keys and bounds of windows are used; other filters are ignored."""
    assert row_filter_of(filters, table()) == expected


def test_keys_are_compared_as_bytes_only_if_equivalent() -> None:
    """A key of another type is ignored; an impossible key selects nothing."""
    assert row_filter_of([spark.EqualTo(_KEY, 1.5)], table(json_of(float))) == RowFilter()
    seven = frozenset({(7).to_bytes(8, "big")})
    assert row_filter_of([spark.EqualTo(_KEY, 7)], table(LONG)).keys == seven
    assert row_filter_of([spark.EqualTo(_KEY, "no uuid")], table(UUID)).keys == frozenset()
    assert row_filter_of([spark.EqualTo(_START, _AT)], table(shape="key-value")) == RowFilter()


def test_keys_select_their_partitions() -> None:
    """With Kafka's default partitioner; otherwise, all partitions are read."""
    row_filter = RowFilter(frozenset({b"a", b"b"}))
    expected = sorted({partition_for(b"a", 16), partition_for(b"b", 16)})
    assert row_filter.partitions(16, is_partitioned=True) == expected
    assert row_filter.partitions(3, is_partitioned=False) == [0, 1, 2]
    assert RowFilter().partitions(3, is_partitioned=True) == [0, 1, 2]


def test_positions_as_text() -> None:
    """In both directions. Positions of another topic or beyond its end are rejected."""
    text = as_json("t", {1: 7, 0: 41})
    assert text == '{"t":{"0":41,"1":7}}'
    assert from_json(text, "t", "it") == {0: 41, 1: 7}
    assert parse_position(text, {0: 41, 1: 9}, "t") == {0: 41, 1: 7}
    for ends, message in (({0: 40, 1: 9}, "ends at 40"), ({0: 50}, "contains 2 partitions")):
        with pytest.raises(ConfigError, match=message):
            parse_position(text, ends, "t")
    with pytest.raises(ConfigError, match="offsets by partition of the topic u"):
        from_json(text, "u", "it")


def test_options_become_settings_and_serdes(tmp_path: Any) -> None:
    """Text becomes serdes, times and client settings. Secrets are in a file."""
    secret = tmp_path / "client.properties"
    secret.write_text("# not shown\nsecurity.protocol = SASL_PLAINTEXT\n")
    plan = plan_from_options(
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
    assert plan.table.times == StoreTimes(60_000, 99_999)
    assert plan.starting_offsets == "latest"
    assert not plan.is_partitioned
    settings = plan.config.client_settings("restore_consumer")
    assert settings["request.timeout.ms"] in (1234, "1234")
    assert settings["security.protocol"] == "SASL_PLAINTEXT"
