"""Keeps a stage going in one driver: chosen, started, watched, started again, stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from millstream.clock import Clock, SystemClock
from millstream.config import StreamsConfig
from millstream.errors import (
    BrokerUnavailableError,
    StreamsError,
    as_streams_error,
)
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.settings.clients import librdkafka_settings
from millstream.record import TopicPartition
from millstream.runtime.backoff import Backoff
from millstream.spark.sessions.connectors import require
from millstream.spark.sessions.free_slots import SlotClaim
from millstream.structured.election import Election
from millstream.structured.plan import StagePlan
from millstream.structured.progress import StageMeters
from millstream.structured.real_time import claimed_slots
from millstream.structured.stage_query import StageQuery, finished_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("millstream")

_LOOK_S: Final = 0.2
_STOP_S: Final = 10.0
_FIRST_PAUSE_MS: Final = 500
_MOST_PAUSE_MS: Final = 30_000
_CALM_MS: Final = 60_000


class StageKeeper:
    """Runs on a Python thread of its own, from `start` to `close`.

    Args:
        plan: of the stage.
        config: settings of the application.
        session: where the query runs.
        on_failure: told of each error of which the query ended. It is started again after a pause,
            unless the one who is told closes the application.
        clock: for pauses and intervals.
    """

    def __init__(
        self,
        plan: StagePlan,
        config: StreamsConfig,
        session: SparkSession,
        on_failure: Callable[[StreamsError], None],
        clock: Clock | None = None,
    ) -> None:
        self._plan = plan
        self._config = config
        self._session = session
        self._on_failure = on_failure
        self._clock = clock or SystemClock()
        self.meters = StageMeters(plan.name)
        self._closing = threading.Event()
        self._paused = threading.Event()
        self._patience_s = _STOP_S
        self._backoff = Backoff(
            self._clock, first_ms=_FIRST_PAUSE_MS, most_ms=_MOST_PAUSE_MS, calm_ms=_CALM_MS
        )
        self._not_before_ms = 0
        self._trouble_since_ms: int | None = None
        #: Kept until the query has ended, whatever fails: a second one must not run beside it.
        self._query: StageQuery | None = None
        #: Whether the query is to be stopped, and was not yet.
        self._is_stopping = False
        self._slots: SlotClaim | None = None
        self._election: Election | None = None
        self._admin: ClusterAdmin | None = None
        self._counts: Mapping[str, int] = {}
        self._noted: dict[TopicPartition, int] = {}
        self._purged: dict[TopicPartition, int] = {}
        self._purged_ms = 0
        self._purging: Mapping[TopicPartition, Future[Any]] = {}
        self._thread = threading.Thread(
            target=self._run, name=f"millstream-dataframe-{plan.name}", daemon=True
        )

    def start(self) -> None:
        """Begin to look after the stage."""
        self._thread.start()

    def pause(self, paused: bool) -> None:
        """Stop the query until it shall go on, or let it go on. No other driver takes over."""
        if paused:
            self._paused.set()
        else:
            self._paused.clear()

    def begin_to_close(self, patience_s: float) -> None:
        """Stop the query and leave the group, in the background.

        Args:
            patience_s: how long the batch under way may take to come to its end.
        """
        self._patience_s = min(patience_s, self._patience_s)
        self._closing.set()

    def await_closed(self, timeout_s: float) -> bool:
        """Whether all is closed, after so long at most."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                try:
                    self._look()
                except Exception as error:
                    self._failed(as_streams_error(f"DataFrame function {self._plan.name}", error))
        finally:
            self._give_up()
            self.meters.becomes("closed")

    def _look(self) -> None:
        """One round: follow the group, and do what is due."""
        if not self._has_topics():
            self._closing.wait(_LOOK_S)
            return
        if self._election is None:
            self._election = Election(self._plan, self._config, self._stop)
        self._election.poll(_LOOK_S)
        if self._is_stopping:
            if self._clock.monotonic_ms() < self._not_before_ms:
                return
            self._stop()
        elif self._query is not None:
            self._follow(self._election, self._query)
        if self._paused.is_set():
            self._stop()
            self.meters.becomes("paused")
        elif not self._election.is_owner:
            self.meters.becomes("standby")
        elif self._is_due:
            self._start_query(self._election)

    @property
    def _is_due(self) -> bool:
        """Whether the query is to be started now."""
        # One that had all that was available was to have no more.
        is_over = self._query is not None or self.meters.status.state == "ended"
        return not is_over and self._clock.monotonic_ms() >= self._not_before_ms

    def _has_topics(self) -> bool:
        """Whether the group's leader has made the topics."""
        plan = self._plan
        wanted = set(filter(None, (plan.input_topic, plan.output_topic)))
        if wanted <= self._counts.keys():
            return True
        if self._admin is None:
            settings = librdkafka_settings(
                self._config, "admin", f"{plan.query_name}-dataframe-admin"
            )
            self._admin = ClusterAdmin(settings)
        try:
            self._counts = self._admin.partition_counts(wanted)
        except BrokerUnavailableError as error:
            logger.info("%s waits for its topics: %s", plan.name, error)
        return wanted <= self._counts.keys()

    def _start_query(self, election: Election) -> None:
        plan = self._plan
        require(self._session, ["kafka"])
        if plan.trigger.is_real_time:
            needed = self._counts[plan.input_topic]
            self._slots = claimed_slots(self._session, needed, plan.name, plan.declared_at)
        finished = election.finished(self._counts[plan.input_topic])
        partitions = 0 if plan.output_topic is None else self._counts[plan.output_topic]
        self._noted = {}
        self._query = StageQuery(self._session, plan, self._config, partitions, finished)
        if self._slots is not None:
            self._slots.used_by(self._query.run_id)
        self.meters.becomes("running")
        logger.info("DataFrame function %s runs as query %s", plan.name, self._query.id)

    def _follow(self, election: Election, query: StageQuery) -> None:
        is_active = query.is_active
        progress = query.progress
        if progress is not None:
            self.meters.take(progress)
            self._finished(election, query, progress)
        if is_active:
            return
        self._query = None
        self._release_slots()
        failure = query.failure()
        if failure is not None:
            raise failure
        self.meters.becomes("ended")
        logger.info("DataFrame function %s has had all that was there", self._plan.name)

    def _finished(self, election: Election, query: StageQuery, progress: Mapping[str, Any]) -> None:
        """Note how far it is, and delete what nobody needs any more."""
        ends = finished_by(progress, self._plan.input_topic)
        news = {place: end for place, end in ends.items() if end != self._noted.get(place)}
        if news:
            self._trouble_since_ms = None
        if news and election.note(news, query.id):
            self._noted |= news
        self._purge()

    def _purge(self) -> None:
        now_ms = self._clock.monotonic_ms()
        interval_ms = self._config.repartition_purge_interval_ms
        if self._admin is None or now_ms - self._purged_ms < interval_ms:
            return
        if not all(future.done() for future in self._purging.values()):
            return
        for place, future in self._purging.items():
            if future.exception() is not None:
                logger.warning("records of %s are not deleted yet: %s", place, future.exception())
                self._purged.pop(place, None)
        self._purged_ms = now_ms
        before = {
            place: end for place, end in self._noted.items() if end > self._purged.get(place, 0)
        }
        self._purging = self._admin.delete_records(before)
        self._purged |= before

    def _failed(self, failure: StreamsError) -> None:
        """Stop the query, which may still run, report the error, and schedule the next start."""
        try:
            self._stop()
        except Exception as error:
            logger.warning(
                "DataFrame function %s: %s after an error: %s",
                self._plan.name,
                "its progress could not be noted"
                if self._query is None
                else "its query could not be stopped, which is tried again before the next start,",
                error,
            )
        if self._closing.is_set():
            logger.warning("%s", failure)
            return
        pause_ms = self._backoff.next_pause_ms()
        self._not_before_ms = self._clock.monotonic_ms() + pause_ms
        self.meters.becomes("failed")
        self.meters.restarts()
        if failure.retriable and self._is_patient():
            logger.warning(
                "DataFrame function %s waits for a broker, and is started again in %d ms: %s",
                self._plan.name,
                pause_ms,
                failure,
            )
            return
        logger.warning(
            "DataFrame function %s has failed, and is started again in %d ms unless the "
            "application is to close: %s",
            self._plan.name,
            pause_ms,
            failure,
        )
        self._on_failure(failure)

    def _is_patient(self) -> bool:
        """Whether what no broker has answered is tried again without asking anybody, as stream
        threads do it: for `task.timeout.ms` since the last batch."""
        now_ms = self._clock.monotonic_ms()
        if self._trouble_since_ms is None:
            self._trouble_since_ms = now_ms
        return now_ms - self._trouble_since_ms < self._config.task_timeout_ms

    def _stop(self) -> None:
        """Stop the query, if it runs, and note how far it came.

        Raises:
            Exception: whatever Spark raises. The query may still run, and is kept.
        """
        query = self._query
        if query is None:
            self._release_slots()
            return
        self._is_stopping = True
        in_time = query.stop(self._patience_s)
        self._query, self._is_stopping = None, False
        self._release_slots()
        if not in_time:
            logger.warning(
                "The query of the DataFrame function %s was stopped in the midst of a batch, which "
                "is done again at the next start",
                self._plan.name,
            )
        progress = query.progress
        if progress is not None and self._election is not None:
            self.meters.take(progress)
            self._finished(self._election, query, progress)

    def _release_slots(self) -> None:
        if self._slots is not None:
            self._slots.release()
            self._slots = None

    def _give_up(self) -> None:
        for close in (
            self._stop,
            *([] if self._election is None else [self._election.close]),
            *([] if self._admin is None else [self._admin.close]),
        ):
            try:
                close()
            except Exception as error:
                logger.warning("Closing the DataFrame function %s: %s", self._plan.name, error)
        if self._query is not None:
            logger.error(
                "The query of the DataFrame function %s could not be stopped and may still run in "
                "the Spark session. Stop the session before the application is started again.",
                self._plan.name,
            )
