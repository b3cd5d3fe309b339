"""The user's say in how RocksDB is opened arrives there, or is told what is wrong with it."""

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
from millstream.runtime.check import check_topology
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


def sized(store: str, options: Options, given: StreamsConfig) -> None:
    assert given.application_id == "tuned"
    options.set_write_buffer_size(SIZES[store])
    # What keeps data and offset together is not the user's to change.
    options.set_atomic_flush(False)


class Sized:
    def set_config(self, store: str, options: Options, given: StreamsConfig) -> None:
        sized(store, options, given)


@pytest.mark.parametrize("setter", [sized, Sized, Sized()])
def test_options_arrive_in_every_persistent_store(
    setter: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read from what RocksDB itself writes down; global stores included."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with TopologyTestDriver(topology(), config(setter)) as driver:
        driver.create_input_topic("words", key=STRING, value=STRING).pipe_input("a", "b")
        found = {path.parent.name: path.read_text() for path in tmp_path.rglob("OPTIONS-*")}
    assert found.keys() == SIZES.keys()
    for store, size in SIZES.items():
        assert f"write_buffer_size={size}\n" in found[store]
        assert "atomic_flush=true" in found[store]


def fails(store: str, options: Options, given: StreamsConfig) -> None:
    raise ValueError("no such cache")


def test_a_setter_that_fails_names_the_store() -> None:
    with pytest.raises(
        ConfigError, match=r"failed for store .* ValueError: no such cache"
    ) as raised:
        TopologyTestDriver(topology(), config(fails))
    assert isinstance(raised.value.__cause__, ValueError)


def contradicts(store: str, options: Options, given: StreamsConfig) -> None:
    # Not together with an atomic flush.
    options.set_enable_pipelined_write(True)


def test_options_that_rocksdb_refuses_name_the_store() -> None:
    with pytest.raises(ConfigError, match=r"refuses the options .* store .*atomic_flush"):
        TopologyTestDriver(topology(), config(contradicts))


@pytest.mark.parametrize("setter", [5, object()])
def test_what_cannot_be_called_is_refused_before_the_start(setter: object) -> None:
    with pytest.raises(ConfigError, match="must be a function"):
        check_topology(topology(), config(setter))


def test_a_function_is_fine() -> None:
    check_topology(topology(), config(sized))
