"""The config setter of RocksDB: its options take effect, and its errors are explained."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options

from millstream import (
    ConfigError,
    Processor,
    Record,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from millstream.runtime.start.topology_checks import check_topology
from millstream.serdes import STRING
from millstream.testing import TopologyTestDriver

SIZES = {"counts": 1_234_567, "held": 2_345_678, "shared": 3_456_789}


def config(setter: Any) -> StreamsConfig:
    return StreamsConfig(
        application_id="tuned", bootstrap_servers="not-used:9092", rocksdb_config_setter=setter
    )


class Put(Processor[str, str, None, None]):
    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("shared").put(record.key, record.value)


def topology() -> Topology:
    """Two tables and a global store, all on disk."""
    builder = StreamsBuilder()
    words = builder.stream("words", key=STRING, value=STRING).group_by_key()
    words.count(store="counts")
    words.reduce(lambda _, new: new, store="held")
    shared = Stores.key_value_builder(Stores.persistent_key_value("shared"), STRING, STRING)
    builder.add_global_store(shared, "rates", Put, key=STRING, value=STRING)
    return builder.build()


def set_sizes(store: str, options: Options, streams_config: StreamsConfig) -> None:
    assert streams_config.application_id == "tuned"
    options.set_write_buffer_size(SIZES[store])
    # The option that keeps data and offset together cannot be changed.
    options.set_atomic_flush(False)


class SizeSetter:
    def set_config(self, store: str, options: Options, streams_config: StreamsConfig) -> None:
        set_sizes(store, options, streams_config)


@pytest.mark.parametrize("setter", [set_sizes, SizeSetter, SizeSetter()])
def test_options_take_effect_in_every_persistent_store(
    setter: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read from the files that RocksDB writes. Global stores are included."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with TopologyTestDriver(topology(), config(setter)) as driver:
        driver.create_input_topic("words", key=STRING, value=STRING).pipe_input("a", "b")
        found = {path.parent.name: path.read_text() for path in tmp_path.rglob("OPTIONS-*")}
    assert found.keys() == SIZES.keys()
    for store, size in SIZES.items():
        assert f"write_buffer_size={size}\n" in found[store]
        assert "atomic_flush=true" in found[store]


def fail(store: str, options: Options, streams_config: StreamsConfig) -> None:
    raise ValueError("no such cache")


def test_error_of_a_failing_setter_names_the_store() -> None:
    with pytest.raises(
        ConfigError, match=r"failed for store .* ValueError: no such cache"
    ) as raised:
        TopologyTestDriver(topology(), config(fail))
    assert isinstance(raised.value.__cause__, ValueError)


def set_conflicting_option(store: str, options: Options, streams_config: StreamsConfig) -> None:
    # Cannot be combined with an atomic flush.
    options.set_enable_pipelined_write(True)


def test_error_about_options_that_rocksdb_rejects_names_the_store() -> None:
    with pytest.raises(ConfigError, match=r"rejected the options .* store .*atomic_flush"):
        TopologyTestDriver(topology(), config(set_conflicting_option))


@pytest.mark.parametrize("setter", [5, object()])
def test_invalid_setter_is_rejected_before_the_start(setter: object) -> None:
    with pytest.raises(ConfigError, match="must be a function"):
        check_topology(topology(), config(setter))


def test_function_is_a_valid_setter() -> None:
    check_topology(topology(), config(set_sizes))
