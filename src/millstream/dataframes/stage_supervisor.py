"""Supervises a stage in one driver.

The driver takes part in the stage's election, and runs the stage's query if elected.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.clock import Clock, SystemClock
from millstream.config.streams_config import StreamsConfig
from millstream.dataframes.election import StageElection
from millstream.dataframes.progress import StageTracker
from millstream.dataframes.real_time import claim_stage_slots
from millstream.dataframes.stage_plan import StagePlan
from millstream.dataframes.stage_query import StageQuery, finished_offsets
from millstream.errors import BrokerUnavailableError, StreamsError, as_streams_error
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.settings.librdkafka_settings import librdkafka_settings
from millstream.record import TopicPartition
from millstream.runtime.retry import Backoff
from millstream.spark.sessions.connectors import require
from millstream.spark.sessions.free_slots import SlotClaim

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("millstream")

_POLL_INTERVAL_S: Final = 0.2
_STOP_TIMEOUT_S: Final = 10.0
_INITIAL_BACKOFF_MS: Final = 500
_MAX_BACKOFF_MS: Final = 30_000
_BACKOFF_RESET_MS: Final = 60_000


@dataclass(eq=False, repr=False)
class StageSupervisor:
    """Supervises a stage on a dedicated Python thread.

    `on_failure` is called with each error that ends the query, except for retriable errors within
    `task.timeout.ms`. The query is restarted after a backoff, unless the callback closes the
    application.
    """

    plan: StagePlan
    config: StreamsConfig
    session: SparkSession
    on_failure: Callable[[StreamsError], None]
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self.tracker = StageTracker(self.plan.name)
        self._closing = threading.Event()
        self._paused = threading.Event()
        self._stop_timeout_s = _STOP_TIMEOUT_S
        self._backoff = Backoff(
            self.clock,
            initial_ms=_INITIAL_BACKOFF_MS,
            max_ms=_MAX_BACKOFF_MS,
            reset_after_ms=_BACKOFF_RESET_MS,
        )
        self._not_before_ms = 0
        self._retrying_since_ms: int | None = None
        #: Set until the query has ended, even after errors, so that two queries never run at once.
        self._query: StageQuery | None = None
        #: Whether the query is being stopped. Remains set after a failure, for the next attempt.
        self._is_stopping = False
        self._slots: SlotClaim | None = None
        self._election: StageElection | None = None
        self._admin: ClusterAdmin | None = None
        self._partition_counts: Mapping[str, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._purged: dict[TopicPartition, int] = {}
        self._purged_ms = 0
        self._purging: Mapping[TopicPartition, Future[Any]] = {}
        self._thread = threading.Thread(
            target=self._run, name=f"millstream-dataframe-{self.plan.name}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def pause(self, paused: bool) -> None:
        """Pause or resume the query. Other drivers do not take over a paused query."""
        if paused:
            self._paused.set()
        else:
            self._paused.clear()

    def request_close(self, timeout_s: float) -> None:
        """Stop the query and leave the group in the background.

        The current batch may take up to `timeout_s`, but at most 10 seconds, to finish.
        """
        self._stop_timeout_s = min(timeout_s, self._stop_timeout_s)
        self._closing.set()

    def await_closed(self, timeout_s: float) -> bool:
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                try:
                    self._run_once()
                except Exception as error:
                    self._handle_failure(
                        as_streams_error(f"DataFrame function {self.plan.name}", error)
                    )
        finally:
            self._close()
            self.tracker.set_state("closed")

    def _run_once(self) -> None:
        """Poll the election, and start, monitor or stop the query if necessary."""
        if not self._has_topics():
            self._closing.wait(_POLL_INTERVAL_S)
            return
        if self._election is None:
            self._election = StageElection(self.plan, self.config, self._stop)
        self._election.poll(_POLL_INTERVAL_S)
        if self._is_stopping:
            if self.clock.monotonic_ms() < self._not_before_ms:
                return
            self._stop()
        elif self._query is not None:
            self._monitor_query(self._election, self._query)
        if self._paused.is_set():
            self._stop()
            self.tracker.set_state("paused")
        elif not self._election.is_owner:
            self.tracker.set_state("standby")
        elif self._is_due:
            self._start_query(self._election)

    @property
    def _is_due(self) -> bool:
        # A query with the trigger `available_now` is not restarted after it has ended.
        has_started = self._query is not None or self.tracker.status.state == "ended"
        return not has_started and self.clock.monotonic_ms() >= self._not_before_ms

    def _has_topics(self) -> bool:
        """Return whether the stage's topics exist.

        The leader of the application's group creates the topics.
        """
        plan = self.plan
        wanted = set(filter(None, (plan.input_topic, plan.output_topic)))
        if wanted <= self._partition_counts.keys():
            return True
        if self._admin is None:
            client_id = f"{plan.query_name}-dataframe-admin"
            self._admin = ClusterAdmin(librdkafka_settings(self.config, "admin", client_id))
        try:
            self._partition_counts = self._admin.partition_counts(wanted)
        except BrokerUnavailableError as error:
            logger.info("DataFrame function %s is waiting for its topics: %s", plan.name, error)
        return wanted <= self._partition_counts.keys()

    def _start_query(self, election: StageElection) -> None:
        plan = self.plan
        require(self.session, ["kafka"])
        if plan.trigger.is_real_time:
            needed = self._partition_counts[plan.input_topic]
            self._slots = claim_stage_slots(self.session, needed, plan.name, plan.declared_at)
        finished = election.committed_offsets(self._partition_counts[plan.input_topic])
        partitions = 0 if plan.output_topic is None else self._partition_counts[plan.output_topic]
        self._committed = {}
        self._query = StageQuery(self.session, plan, self.config, partitions, finished)
        if self._slots is not None:
            self._slots.run_id = self._query.run_id
        self.tracker.set_state("running")
        logger.info("DataFrame function %s is running as query %s", plan.name, self._query.id)

    def _monitor_query(self, election: StageElection, query: StageQuery) -> None:
        is_active = query.is_active
        progress = query.progress
        if progress is not None:
            self.tracker.update(progress)
            self._on_progress(election, query, progress)
        if is_active:
            return
        self._query = None
        self._release_slots()
        failure = query.failure()
        if failure is not None:
            raise failure
        self.tracker.set_state("ended")
        logger.info("DataFrame function %s has processed all available records", self.plan.name)

    def _on_progress(
        self, election: StageElection, query: StageQuery, progress: Mapping[str, Any]
    ) -> None:
        """Commit the progress, and delete processed records."""
        ends = finished_offsets(progress, self.plan.input_topic)
        changed = {tp: end for tp, end in ends.items() if end != self._committed.get(tp)}
        if changed:
            self._retrying_since_ms = None
        if changed and election.commit(changed, query.id):
            self._committed |= changed
        self._purge()

    def _purge(self) -> None:
        now_ms = self.clock.monotonic_ms()
        interval_ms = self.config.repartition_purge_interval_ms
        if self._admin is None or now_ms - self._purged_ms < interval_ms:
            return
        if not all(future.done() for future in self._purging.values()):
            return
        for tp, future in self._purging.items():
            if future.exception() is not None:
                logger.warning("Records of %s were not deleted: %s", tp, future.exception())
                self._purged.pop(tp, None)
        self._purged_ms = now_ms
        before = {tp: end for tp, end in self._committed.items() if end > self._purged.get(tp, 0)}
        self._purging = self._admin.delete_records(before)
        self._purged |= before

    def _handle_failure(self, failure: StreamsError) -> None:
        """Stop the query if it is running, report the error, and schedule a restart."""
        try:
            self._stop()
        except Exception as error:
            logger.warning(
                "DataFrame function %s failed, and %s: %s",
                self.plan.name,
                "its progress could not be committed"
                if self._query is None
                else "its query could not be stopped (this is retried before the next start)",
                error,
            )
        if self._closing.is_set():
            logger.warning("%s", failure)
            return
        pause_ms = self._backoff.next_pause_ms()
        self._not_before_ms = self.clock.monotonic_ms() + pause_ms
        self.tracker.set_state("failed")
        self.tracker.count_restart()
        if failure.retriable and self._may_retry():
            logger.warning(
                "DataFrame function %s is waiting for a broker, and will be restarted in %d ms: %s",
                self.plan.name,
                pause_ms,
                failure,
            )
            return
        logger.warning(
            "DataFrame function %s failed, and will be restarted in %d ms unless the application "
            "closes: %s",
            self.plan.name,
            pause_ms,
            failure,
        )
        self.on_failure(failure)

    def _may_retry(self) -> bool:
        """Return whether to retry without reporting the error.

        This is the case for `task.timeout.ms` after the first error since the latest progress.
        Stream threads retry in the same way while no broker responds.
        """
        now_ms = self.clock.monotonic_ms()
        if self._retrying_since_ms is None:
            self._retrying_since_ms = now_ms
        return now_ms - self._retrying_since_ms < self.config.task_timeout_ms

    def _stop(self) -> None:
        """Stop the query if it is running, and commit its progress.

        If Spark raises an error, the query may still be running, and another attempt to stop it
        follows.
        """
        query = self._query
        if query is None:
            self._release_slots()
            return
        self._is_stopping = True
        in_time = query.stop(self._stop_timeout_s)
        self._query, self._is_stopping = None, False
        self._release_slots()
        if not in_time:
            logger.warning(
                "The query of the DataFrame function %s was stopped in the middle of a batch, "
                "which will be repeated at the next start",
                self.plan.name,
            )
        progress = query.progress
        if progress is not None and self._election is not None:
            self.tracker.update(progress)
            self._on_progress(self._election, query, progress)

    def _release_slots(self) -> None:
        if self._slots is not None:
            self._slots.release()
            self._slots = None

    def _close(self) -> None:
        for close in (
            self._stop,
            *([] if self._election is None else [self._election.close]),
            *([] if self._admin is None else [self._admin.close]),
        ):
            try:
                close()
            except Exception as error:
                logger.warning("Closing DataFrame function %s failed: %s", self.plan.name, error)
        if self._query is not None:
            logger.error(
                "The query of the DataFrame function %s could not be stopped and may still be "
                "running in the Spark session. Stop the session before restarting the application.",
                self.plan.name,
            )
