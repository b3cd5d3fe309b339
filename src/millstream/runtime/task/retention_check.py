"""A warning about window stores whose changelog retention is too short.

Brokers apply `retention.ms` to record timestamps, and the changes of a window have the timestamps
of its records. If an application processes last year's records, the broker deletes the changelogs
of their windows soon after they are written, as in Kafka Streams.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from millstream.clock import Clock
from millstream.config.streams_config import StreamsConfig
from millstream.record import TaskId
from millstream.runtime.start.topology_topics import changelog_settings
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.builders.window_builders import SessionStoreBuilder, WindowStoreBuilder
from millstream.state.task_stores import TaskStores

logger = logging.getLogger(__name__)

#: The highest timestamp that can be formatted as a date.
_LATEST_MS: Final = 253_402_300_799_000


class RetentionCheck:
    """Warns about each store whose changelog retention is too short for its records.

    The clock must be in sync with the clocks of the brokers.
    """

    def __init__(
        self, task_id: TaskId, builders: Iterable[StoreBuilder], config: StreamsConfig, clock: Clock
    ) -> None:
        self._task_id = task_id
        self._clock = clock
        self._retentions = {
            builder.name: retention_ms
            for builder in builders
            if (retention_ms := _retention_ms(builder, config)) is not None
        }
        #: Stream times of the stores at the last commit; empty before the task starts.
        self._seen: Mapping[str, int] = {}

    def begin(self, stores: TaskStores) -> None:
        """Store the stream times of restored stores.

        Restored records therefore cause no warning.
        """
        self._seen = stores.stream_times()

    def check(self, stores: TaskStores) -> None:
        """Warn about each store with new records older than its retention.

        Called before a commit.
        """
        if not self._retentions:
            return
        times, now_ms = stores.stream_times(), self._clock.now_ms()
        for store, retention_ms in list(self._retentions.items()):
            newest_ms = times.get(store, -1)
            # Without new records nothing is written, so an idle application gets no warning.
            if self._seen.get(store, -1) < newest_ms < now_ms - retention_ms:
                del self._retentions[store]
                self._warn(store, newest_ms, retention_ms)
        self._seen = times

    def _warn(self, store: str, newest_ms: int, retention_ms: int) -> None:
        newest = datetime.fromtimestamp(min(newest_ms, _LATEST_MS) / 1_000, UTC)
        logger.warning(
            "task %s: store '%s' receives records of %s, but its changelog keeps records for %s "
            "after their timestamps (retention.ms=%d): the broker deletes the changes of these "
            "windows soon after they are written. The windows are lost if the local state is lost, "
            "for example with the disk, or at the end of the process for in-memory stores. To "
            "process records of that age, set windowstore_changelog_additional_retention_ms to "
            "their age, or set retention.ms of the changelog, for example with Materialized(..., "
            "logging={'retention.ms': '-1'}). An existing changelog keeps its settings: change "
            "them with kafka-configs.",
            self._task_id,
            store,
            newest.strftime("%Y-%m-%d"),
            timedelta(milliseconds=retention_ms),
            retention_ms,
        )


def _retention_ms(builder: StoreBuilder, config: StreamsConfig) -> int | None:
    """Return the age at which the broker deletes the changes of a store.

    Returns None if the broker does not delete changes by their timestamps.
    """
    if not builder.logging or not isinstance(builder, WindowStoreBuilder | SessionStoreBuilder):
        return None
    settings = changelog_settings(builder, config)
    if "delete" not in settings.get("cleanup.policy", "delete"):
        return None
    if settings.get("message.timestamp.type") == "LogAppendTime":
        return None
    retention_ms = int(settings["retention.ms"])
    if retention_ms < 0:
        return None
    # The stream time of a store is the start of a window, and changes have later timestamps.
    size_ms = builder.window_size_ms if isinstance(builder, WindowStoreBuilder) else 0
    return max(retention_ms, size_ms)
