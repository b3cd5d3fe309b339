"""`Suppressed` and `BufferConfig`: their options and limits."""

from __future__ import annotations

from datetime import timedelta

import pytest

from millstream.errors import ConfigError, TopologyError
from millstream.serdes import STRING
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.suppressed import BufferConfig, Suppressed


def test_buffer_is_strict_or_eager() -> None:
    """With limits alone it emits early; both modes are available for every limit."""
    eager = BufferConfig.max_records(5).with_max_bytes(100)
    assert (eager.record_limit, eager.byte_limit, eager.emits_early) == (5, 100, True)
    strict = eager.shut_down_when_full()
    assert (strict.record_limit, strict.emits_early) == (5, False)
    assert strict.emit_early_when_full() == eager
    assert eager.with_no_bound() == BufferConfig.unbounded()
    logged = eager.with_logging_enabled({"retention.ms": "5"})
    assert (logged.logging, logged.topic_config) == (True, {"retention.ms": "5"})
    assert not logged.with_logging_disabled().logging


def test_final_results_are_not_emitted_early() -> None:
    """They would not be final."""
    with pytest.raises(ConfigError, match="final results only"):
        Suppressed.until_window_closes(BufferConfig.max_records(5))
    Suppressed.until_window_closes(BufferConfig.max_records(5).shut_down_when_full())


def test_limits_must_not_be_negative() -> None:
    """Times, records and bytes."""
    with pytest.raises(ConfigError, match="-1 records"):
        BufferConfig.max_records(-1)
    with pytest.raises(ConfigError, match="-1 bytes"):
        BufferConfig.unbounded().with_max_bytes(-1)
    with pytest.raises(ConfigError, match="must be at least 0"):
        Suppressed.until_time_limit(timedelta(-1), BufferConfig.unbounded())


def test_until_window_closes_requires_windows() -> None:
    """The error contains the node of the table."""
    table = StreamsBuilder().stream("in", key=STRING, value=STRING).group_by_key().count()
    with pytest.raises(TopologyError, match=r"windowed_by.*until_time_limit") as failure:
        table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    assert failure.value.node == "KSTREAM-AGGREGATE-0000000002"


def test_named_operation_uses_no_number() -> None:
    """Both `Suppressed` and `suppress()` accept a name; that of `Suppressed` takes precedence."""
    builder = StreamsBuilder()
    table = builder.stream("in", key=STRING, value=STRING).group_by_key().count()
    limit = Suppressed.until_time_limit(timedelta(seconds=1), BufferConfig.unbounded())
    table.suppress(limit, name="calm").to_stream().to("out")
    topology = builder.build()
    assert "calm-store" in topology.state_stores
    assert [name for name in topology.nodes if name.endswith("3")] == ["KTABLE-TOSTREAM-0000000003"]
