"""Keeping the global stores of a thread equal to their topics.

Each stream thread has a consumer for all partitions of all global topics. It reads them from where
its copy stands to where they ended at the start; only then the thread's tasks begin to process.
From then on, updates are applied between the batches of the tasks. In Kafka Streams, the threads of
an instance share one copy, which a thread of its own keeps up to date (`GlobalStreamThread`).
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from millstream.clock import Clock
from millstream.config import StreamsConfig
from millstream.errors import (
    BrokerUnavailableError,
    LockError,
    MissingSourceTopicError,
    OffsetOutOfRangeError,
    StreamsError,
    TaskCorruptedError,
    UnknownTopicError,
)
from millstream.kafka.data.consumer import OFFSET_BEGINNING
from millstream.kafka.protocols import Consumer
from millstream.kafka.settings.clients import client_setting
from millstream.metrics.registry import Scope
from millstream.record import TopicPartition
from millstream.runtime.control import RestoreEvent, RestoreStep
from millstream.runtime.ownership.global_stores import GLOBAL_TASK, GlobalStores
from millstream.runtime.retry import LockRetry, Retry
from millstream.runtime.task.node_context import Dropped
from millstream.runtime.task.task_meters import TaskMeters
from millstream.runtime.thread_clients import Clients
from millstream.state.directories.disk import disk_errors
from millstream.state.directories.locked_directory import LockedDirectory
from millstream.state.opening.open_store import OpenStore
from millstream.state.storage.storages import Storages
from millstream.topology.physical.topology import Topology

logger = logging.getLogger(__name__)

#: How long the loop may stand still for one request.
_REQUEST_TIMEOUT_MS = 3_000
#: A topic that was created just now is not known to every broker yet.
_MISSING_TOPIC_MS = 5_000
#: Slow user code gets so few records at once that the loop comes round about as often as this.
_ROUND_MS = 200
_FIRST_ROUND_RECORDS = 100
#: How often the log tells how far a long catching up is.
_PROGRESS_MS = 10_000
#: How often in a row the copies are read again before something else is thought to be broken.
_MOST_REBUILDS = 3


class PartitionCounts(Protocol):
    """Asks the cluster how many partitions topics have."""

    def partition_counts(self, topics: Collection[str], timeout_ms: int, /) -> Mapping[str, int]:
        """The partition count of each of the topics that exists."""
        ...


class _Stage(enum.Enum):
    CLOSED = "closed"
    OPEN = "open"
    CATCHING_UP = "catching up"
    FOLLOWING = "following"


@dataclass(slots=True)
class _CatchingUp:
    """One partition on its way to where it ended at the start."""

    start: int
    end_offset: int
    started_ms: int
    said_ms: int
    records: int = 0


class GlobalUpdates:
    """Reads the global topics into the stores of one thread.

    Args:
        stores: the copies.
        consumer: reads the topics; nobody else uses it.
        cluster: tells how many partitions they have.
        directory: where the copies lie; None if they are in memory only.
        clock: for retries.
        listener: told of each partition's catching up, as if a changelog was restored.
        timeout_ms: how long the cluster may not answer before the thread gives up.
        max_records: the most records applied in one round.
        look_ms: how often to look for new partitions.

    Attributes:
        stores: as given.
    """

    def __init__(
        self,
        stores: GlobalStores,
        consumer: Consumer,
        cluster: PartitionCounts,
        directory: LockedDirectory | None,
        clock: Clock,
        listener: Callable[[RestoreEvent], None],
        *,
        timeout_ms: int,
        max_records: int,
        look_ms: int,
    ) -> None:
        self.stores = stores
        self._consumer = consumer
        self._cluster = cluster
        self._directory = directory
        self._clock = clock
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._max_records = max_records
        self._look_ms = look_ms
        self._next_look_ms = 0
        self._stage = _Stage.CLOSED
        self._behind: dict[TopicPartition, _CatchingUp] = {}
        self._read: set[TopicPartition] = set()
        self._limit = min(_FIRST_ROUND_RECORDS, max_records)
        self._rebuilt = 0
        self._opening = LockRetry("opening the global stores", clock, timeout_ms)
        self._beginning = Retry("beginning to read global topics", clock, timeout_ms)
        self._missing = Retry("looking for global topics", clock, _MISSING_TOPIC_MS)

    @property
    def caught_up(self) -> bool:
        """Whether tasks may read the stores."""
        return self._stage is _Stage.FOLLOWING

    @property
    def is_reading(self) -> bool:
        """Whether records are to be expected before tasks may read the stores."""
        return self._stage is _Stage.CATCHING_UP

    def find(self, name: str) -> OpenStore | None:
        """The store of that name, for queries; None if there is none, or before it has caught up.

        What has been read half way would tell of keys that they do not exist. In Kafka Streams
        nobody can ask by then: the client starts after its global thread has caught up.
        """
        return self.stores.find(name) if self.caught_up else None

    def step(self, timeout_ms: int) -> None:
        """Go one step further towards the end of the topics, or apply what is new in them.

        Args:
            timeout_ms: how long to wait for records while catching up.

        Raises:
            TaskCorruptedError: the copies cannot be trusted; `rebuild` them.
            MissingSourceTopicError: a topic does not exist.
            BrokerUnavailableError: the cluster did not answer for the whole timeout.
            LockError: another process has had the copies open for the whole timeout.
            StreamsError: a record could not be read, or the user's processor failed.
        """
        if self._stage is _Stage.CLOSED and self._opening.is_due:
            self._open()
        if self._stage is _Stage.OPEN and self._beginning.is_due and self._missing.is_due:
            self._begin()
        if self._stage is _Stage.CATCHING_UP:
            self._apply(timeout_ms)
            self._finish_at_ends()
        elif self._stage is _Stage.FOLLOWING:
            self._apply(0)
            if self._clock.monotonic_ms() >= self._next_look_ms:
                self._look_for_partitions()

    def rebuild(self, why: TaskCorruptedError) -> None:
        """Throw the copies away and read the topics again. No task may have them in use.

        Raises:
            StreamsError: they were thrown away several times in a row.
        """
        self._rebuilt += 1
        if self._rebuilt > _MOST_REBUILDS:
            raise StreamsError(
                f"The global stores were rebuilt {_MOST_REBUILDS} times and cannot be trusted "
                f"again: {why.message} Check the disk of state_dir."
            ) from why
        try:
            self._stop()
        except Exception as error:
            # Corrupted files may not even let themselves be closed.
            logger.warning("the global stores did not close: %s", error)
        if self._directory is not None and self._directory.is_locked:
            with disk_errors("delete the state of the global stores"):
                self._directory.wipe()

    def close(self) -> None:
        """Close the stores and let others have the directory."""
        try:
            self._stop()
        finally:
            if self._directory is not None:
                self._directory.unlock()

    def _stop(self) -> None:
        behind = [(place, known, self._at(place)) for place, known in self._behind.items()]
        read = list(self._read)
        self._read.clear()
        self._behind.clear()
        self._stage = _Stage.CLOSED
        with ExitStack() as stopping:
            # In reverse order, each of them even if another one fails.
            stopping.callback(self.stores.close)
            stopping.callback(self._consumer.unassign, read)
            for place, progress, offset in behind:
                stopping.callback(
                    self._tell, RestoreStep.SUSPENDED, place, progress, offset, progress.records
                )

    def _open(self) -> None:
        try:
            if self._directory is not None:
                with disk_errors("open the state of the global stores"):
                    self._directory.lock()
                    self._directory.prepare()
            self.stores.open()
        except LockError as error:
            self._opening.failed(error)
            return
        self._opening.worked()
        self._stage = _Stage.OPEN

    def _begin(self) -> None:
        """Find the partitions and their ends, and read on from where each copy stands."""
        try:
            places = self._partitions(self._existing_topics())
            ends = self._consumer.end_offsets(places, _REQUEST_TIMEOUT_MS)
            starts = {place: self._start_of(place) for place in places}
            self._check(starts, ends)
            self._consumer.assign(starts, _REQUEST_TIMEOUT_MS)
        except (MissingSourceTopicError, UnknownTopicError) as error:
            self._missing.failed(error)
            return
        except BrokerUnavailableError as error:
            self._beginning.failed(error)
            return
        self._beginning.worked()
        self._missing.worked()
        self._read.update(places)
        self._stage = _Stage.CATCHING_UP
        self._next_look_ms = self._clock.monotonic_ms() + self._look_ms
        for place in places:
            now_ms = self._clock.monotonic_ms()
            progress = _CatchingUp(starts[place], ends[place], now_ms, now_ms)
            self._behind[place] = progress
            self._tell(RestoreStep.START, place, progress, max(progress.start, 0), 0)
        self._finish_at_ends()

    def _existing_topics(self) -> Mapping[str, int]:
        counts = self._cluster.partition_counts(self.stores.topics, _REQUEST_TIMEOUT_MS)
        for topic in sorted(self.stores.topics - counts.keys()):
            raise MissingSourceTopicError(
                f"The global store '{self.stores.store_of(topic)}' is a copy of the topic "
                f"{topic!r}, which the cluster does not have. Create it before the application is "
                "started; probably its name is misspelt, or this is another cluster.",
                topic=topic,
            )
        return counts

    def _check(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        for place, start in starts.items():
            if start > ends[place]:
                raise TaskCorruptedError(
                    f"The global store '{self.stores.store_of(place.topic)}' stands at offset "
                    f"{start} of {place}, but that ends at {ends[place]}: it was probably deleted "
                    "and created anew.",
                    task_ids=[GLOBAL_TASK],
                )

    def _apply(self, timeout_ms: int) -> None:
        try:
            fetched = self._consumer.poll_columns(self._limit, timeout_ms)
        except OffsetOutOfRangeError as error:
            shown = ", ".join(f"{offset} of {place}" for place, offset in error.offsets.items())
            raise TaskCorruptedError(
                f"Global stores stand at offsets which their topics no longer have ({shown}).",
                task_ids=[GLOBAL_TASK],
            ) from error
        if not fetched:
            return
        started_ms = self._clock.monotonic_ms()
        for place, records in fetched.items():
            self.stores.update(place, records)
            progress = self._behind.get(place)
            if progress is not None:
                count = len(records.offsets)
                progress.records += count
                self._tell(RestoreStep.BATCH, place, progress, records.offsets[-1], count)
                self._log_progress(place, progress, records.offsets[-1])
        count = sum(len(records.offsets) for records in fetched.values())
        self._fit_rounds(count, self._clock.monotonic_ms() - started_ms)

    def _log_progress(self, place: TopicPartition, progress: _CatchingUp, last: int) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - progress.said_ms >= _PROGRESS_MS:
            progress.said_ms = now_ms
            logger.info(
                "global store %s is at offset %d of %s, on the way to %d",
                self.stores.store_of(place.topic),
                last,
                place,
                progress.end_offset,
            )

    def _fit_rounds(self, count: int, took_ms: int) -> None:
        """Rebalances, commits and the command to close wait for the end of a round."""
        if took_ms > _ROUND_MS:
            self._limit = max(1, count * _ROUND_MS // took_ms)
        elif count == self._limit and 2 * took_ms < _ROUND_MS:
            self._limit = min(self._max_records, 2 * self._limit)

    def _finish_at_ends(self) -> None:
        for place, progress in list(self._behind.items()):
            if self._at(place) >= progress.end_offset:
                del self._behind[place]
                self._finish(place, progress)
        if not self._behind:
            self._rebuilt = 0
            self._stage = _Stage.FOLLOWING

    def _finish(self, place: TopicPartition, progress: _CatchingUp) -> None:
        logger.info(
            "global store %s took %d records from %s up to offset %d in %d ms",
            self.stores.store_of(place.topic),
            progress.records,
            place,
            progress.end_offset,
            self._clock.monotonic_ms() - progress.started_ms,
        )
        self._tell(RestoreStep.END, place, progress, progress.end_offset, progress.records)

    def _look_for_partitions(self) -> None:
        """Read partitions that were added since, too."""
        self._next_look_ms = self._clock.monotonic_ms() + self._look_ms
        try:
            counts = self._cluster.partition_counts(self.stores.topics, _REQUEST_TIMEOUT_MS)
            new = [place for place in self._partitions(counts) if place not in self._read]
            self._consumer.assign(dict.fromkeys(new, OFFSET_BEGINNING), _REQUEST_TIMEOUT_MS)
        except (BrokerUnavailableError, UnknownTopicError) as error:
            logger.info("looking for new partitions of global topics did not work: %s", error)
            return
        self._read.update(new)
        for place in new:
            logger.info("%s is new, and is read from its beginning", place)

    def _partitions(self, counts: Mapping[str, int]) -> list[TopicPartition]:
        return [
            TopicPartition(topic, number)
            for topic in sorted(counts)
            for number in range(counts[topic])
        ]

    def _start_of(self, place: TopicPartition) -> int:
        reached = self.stores.reached(place)
        return OFFSET_BEGINNING if reached is None else reached + 1

    def _at(self, place: TopicPartition) -> int:
        """The next offset. It passes over transaction markers and compacted gaps."""
        position = self._consumer.position(place)
        return 0 if position is None else position

    def _tell(
        self,
        step: RestoreStep,
        place: TopicPartition,
        progress: _CatchingUp,
        offset: int,
        records: int,
    ) -> None:
        self._listener(
            RestoreEvent(
                step,
                place,
                self.stores.store_of(place.topic),
                offset,
                progress.end_offset,
                records,
                GLOBAL_TASK,
            )
        )


class NoGlobalUpdates:
    """Of a thread whose topology has no global store."""

    stores = None
    caught_up = True
    is_reading = False

    def find(self, name: str) -> OpenStore | None:
        """There is none."""
        return None

    def step(self, timeout_ms: int) -> None:
        """Nothing to read."""

    def rebuild(self, why: TaskCorruptedError) -> None:
        """Nothing to rebuild: what was meant is something else."""
        raise why

    def close(self) -> None:
        """Nothing to close."""


def build_global_updates(
    topology: Topology,
    config: StreamsConfig,
    directory: LockedDirectory,
    clients: Clients,
    storages: Storages,
    restored: Callable[[RestoreEvent], None],
    metrics: Scope,
    clock: Clock,
) -> GlobalUpdates | NoGlobalUpdates:
    """What keeps the global stores of a topology up to date in one thread.

    Args:
        topology: the topology.
        config: settings.
        directory: where the thread's copies lie.
        clients: of the thread.
        storages: opens those of persistent stores.
        restored: takes what restore listeners are told.
        metrics: of the thread: those of the global stores' task are added.
        clock: time.

    Raises:
        ConfigError: a serde is missing.
    """
    consumer = clients.global_consumer
    if consumer is None:
        return NoGlobalUpdates()
    meters = TaskMeters(GLOBAL_TASK, clock, metrics.recording, metrics.labels)
    metrics.adopt(meters.scope)
    stores = GlobalStores(
        topology.global_stores.values(),
        config,
        clock,
        directory.path,
        Dropped(GLOBAL_TASK, clock, meters.dropped),
        storages,
        meters.view,
    )
    return GlobalUpdates(
        stores,
        consumer,
        clients.admin,
        directory if stores.are_persistent else None,
        clock,
        restored,
        timeout_ms=config.task_timeout_ms,
        max_records=int(client_setting(config, "global_consumer", "max.poll.records")),
        look_ms=int(client_setting(config, "global_consumer", "metadata.max.age.ms")),
    )
