"""The user's say in how RocksDB is opened."""

from __future__ import annotations

from functools import partial
from typing import Any

from millstream.config import StreamsConfig
from millstream.errors import ConfigError
from millstream.state.storage.rocksdb import RocksDBSettings, RocksDBStorages, RocksDBTuning


def rocksdb_storages(config: StreamsConfig) -> RocksDBStorages:
    """What opens the databases of one process, with the options that its application wants.

    Raises:
        ConfigError: `rocksdb_config_setter` is nothing that could be called.
    """
    return RocksDBStorages(
        RocksDBSettings(
            tuning=rocksdb_tuning(config), statistics=config.metrics_recording_level != "INFO"
        )
    )


def rocksdb_tuning(config: StreamsConfig) -> RocksDBTuning | None:
    """What changes the options of a store before it is opened; None if nobody wants to.

    Source of the semantics: Kafka Streams' `RocksDBConfigSetter`.

    Args:
        config: `rocksdb_config_setter` is a function `(store_name, options, config)`, or an object
            or a class with such a method `set_config`. `options` is a `rocksdict.Options` with
            Millstream's choices.

    Raises:
        ConfigError: it is nothing of that kind.
    """
    given: Any = config.rocksdb_config_setter
    if given is None:
        return None
    setter = getattr(given, "set_config", given)
    if not callable(setter):
        raise ConfigError(
            f"rocksdb_config_setter is {given!r}, but must be a function (store_name, options, "
            "config) that changes the rocksdict.Options of a store, or a class with such a method "
            "set_config."
        )
    return partial(_tune, setter, config)


def _tune(setter: Any, config: StreamsConfig, store: str, options: Any) -> None:
    setter(store, options, config)
