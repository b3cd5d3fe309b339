"""The tables of the lake that an application reads before topics, written before it begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from millstream.config import StreamsConfig
from millstream.errors import ConfigError
from millstream.structured.lake.history import HistoryWriter
from millstream.structured.lake.sink import connectors_of
from millstream.topology.physical.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ISOLATION: Final = "isolation.level"


class LakeHistories:
    """Writes them at the start, unless they were.

    Args:
        topology: has the histories.
        config: settings.
    """

    def __init__(self, topology: Topology, config: StreamsConfig) -> None:
        self._histories = list(topology.lake_histories.values())
        self._config = config

    @property
    def connectors(self) -> list[str]:
        """What a session has to be started with for them."""
        return connectors_of(self._histories)

    def write(self, session: SparkSession, given_up: Callable[[], bool]) -> None:
        """Write those that are not written; ends early if nobody waits for it any more.

        Raises:
            StreamsError: one cannot be written; see `HistoryWriter.write`.
        """
        for history in self._histories:
            if not given_up():
                HistoryWriter(history, self._config, session, given_up).write()


def reading_committed(topology: Topology, config: StreamsConfig) -> StreamsConfig:
    """The settings under which a topology with histories runs: a writer that is killed leaves
    records behind that are not committed, and nobody may read them.

    Raises:
        ConfigError: the settings want uncommitted records.
    """
    if not topology.lake_histories or config.exactly_once:
        return config
    if config.client_settings("main_consumer").get(_ISOLATION) == "read_uncommitted":
        raise ConfigError(
            "isolation.level is read_uncommitted, but stream_from_lake() writes its rows in "
            "transactions, and one that was killed would be read, too. Leave the setting out."
        )
    return config.replace(main_consumer={**config.main_consumer, _ISOLATION: "read_committed"})
