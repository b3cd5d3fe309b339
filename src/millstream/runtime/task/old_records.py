"""A warning about window stores whose changelogs cannot keep the records that are processed.

Brokers apply `retention.ms` to the timestamps of records, and the changes of a window have the
timestamps of its records. When an application processes records of last year, the broker deletes
the changelogs of their windows soon after they are written, as in Kafka Streams.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from millstream.clock import Clock
from millstream.config import StreamsConfig
from millstream.record import TaskId
from millstream.runtime.topology_topics import changelog_settings
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.builders.windows import SessionStoreBuilder, WindowStoreBuilder
from millstream.state.task_stores import TaskStores

logger = logging.getLogger(__name__)

#: The highest timestamp that can be shown as a date.
_LATEST_MS: Final = 253_402_300_799_000


class OldRecords:
    """Logs a warning for each store of a task that gets records its changelog cannot keep.

    Args:
        task_id: the task.
        builders: of the task's stores.
        config: the application's settings.
        clock: the time that brokers are assumed to have.
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
        #: The stream times of the stores at the last commit; none before the task starts.
        self._seen: Mapping[str, int] = {}

    def begin(self, stores: TaskStores) -> None:
        """Note the stream times of restored stores, which are as old as they are."""
        self._seen = stores.stream_times()

    def check(self, stores: TaskStores) -> None:
        """Before a commit: log a warning for each store whose new records are too old."""
        if not self._retentions:
            return
        times, now_ms = stores.stream_times(), self._clock.now_ms()
        for store, retention_ms in list(self._retentions.items()):
            newest_ms = times.get(store, -1)
            # Without new records nothing is written: an idle application is not warned.
            if self._seen.get(store, -1) < newest_ms < now_ms - retention_ms:
                del self._retentions[store]
                self._warn(store, newest_ms, retention_ms)
        self._seen = times

    def _warn(self, store: str, newest_ms: int, retention_ms: int) -> None:
        newest = datetime.fromtimestamp(min(newest_ms, _LATEST_MS) / 1_000, UTC)
        logger.warning(
            "task %s: store '%s' gets records of %s, but its changelog keeps records for %s by "
            "their timestamps (retention.ms=%d): the broker deletes the changes of these windows "
            "soon after they are written. The windows are lost if the state is lost, for example "
            "with the disk, or at the end of the process if the store is in memory. To process "
            "records of that age, set windowstore_changelog_additional_retention_ms to their age, "
            "or retention.ms of the changelog, for example with Materialized(..., "
            "logging={'retention.ms': '-1'}). A changelog that exists already keeps its settings: "
            "change them with kafka-configs.",
            self._task_id,
            store,
            newest.strftime("%Y-%m-%d"),
            timedelta(milliseconds=retention_ms),
            retention_ms,
        )


def _retention_ms(builder: StoreBuilder, config: StreamsConfig) -> int | None:
    """The age at which the broker deletes changes of a store.

    None for stores whose changelogs are not limited by the timestamps of records.
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
