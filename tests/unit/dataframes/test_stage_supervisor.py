"""The supervisor of a DataFrame stage: one query at a time, stopped before the group loses the
stage."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from support.waiting import wait_for

from millstream import StreamsBuilder, StreamsConfig
from millstream.clock import ManualClock
from millstream.dataframes import stage_supervisor as supervisor_module
from millstream.dataframes.stage_plan import StagePlan, stage_plan
from millstream.dataframes.stage_supervisor import StageSupervisor
from millstream.errors import AccessDeniedError, BrokerUnavailableError, StreamsError
from millstream.record import TopicPartition
from millstream.serdes import STRING

DENIED = AccessDeniedError("TOPIC_AUTHORIZATION_FAILED: the ACL was replaced")
INPUT = "app-stage-dataframe-input-repartition"
PLACE = TopicPartition(INPUT, 0)
#: More than the longest backoff before a restart, and than the purge interval.
LONG_MS = 60_000


def plan(config: StreamsConfig) -> StagePlan:
    """The plan of a stage that returns its input."""
    builder = StreamsBuilder()
    stream = builder.stream("orders", key=STRING, value=STRING)
    stages = stream.transform_dataframe(lambda frame: frame, key=STRING, value=STRING, name="stage")
    stages.to("out")
    (stage,) = builder.build().dataframe_stages.values()
    return stage_plan(stage, config)


class Query:
    """A Structured Streaming query: runs until it is stopped or fails."""

    def __init__(self, number: int) -> None:
        self.id = f"query-{number}"
        self.run_id = f"run-{number}"
        self.is_active = True
        self.progress: Mapping[str, Any] | None = None
        self.error: StreamsError | None = None
        self.stop_errors: list[Exception] = []
        self.timeout_s: float | None = None
        #: The end of the batch that is running when the query is stopped.
        self.last_batch: int | None = None

    def failure(self) -> StreamsError | None:
        return self.error

    def stop(self, timeout_s: float) -> bool:
        if self.stop_errors:
            raise self.stop_errors.pop(0)
        self.timeout_s = timeout_s
        self.is_active = False
        if self.last_batch is not None:
            self.complete_batch(self.last_batch)
        return True

    def fail(self, error: StreamsError) -> None:
        self.error, self.is_active = error, False

    def complete_batch(self, offset: int) -> None:
        """Complete a batch that ends at this offset of the first partition."""
        ends = {INPUT: {"0": offset}}
        source = {"endOffset": ends, "metrics": {}}
        self.progress = {"batchId": offset, "numInputRows": 1, "sources": [source]}


class SupervisorHarness:
    """A supervisor on its own thread; the test triggers its rounds.

    Stands in for Spark, the election and the broker, and records the supervisor's calls.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.is_owner = True
        self.accepts_commits = True
        self.errors: list[Exception] = []
        self.queries: list[Query] = []
        self.started_at: list[Mapping[int, int]] = []
        self.committed: dict[TopicPartition, int] = {}
        self.purged: list[Mapping[TopicPartition, int]] = []
        self.purge_error: Exception | None = None
        self.failures: list[StreamsError] = []
        self.closed: list[str] = []
        self.on_lost: Callable[[], None] = lambda: None
        self.loses_ownership = False
        self._allowed = threading.Semaphore(0)
        self._requests = 0
        self._is_waiting = threading.Event()
        for name, value in {
            "StageQuery": self._query,
            "StageElection": self._election,
            "ClusterAdmin": lambda settings: self,
            "require": lambda session, names: None,
        }.items():
            monkeypatch.setattr(supervisor_module, name, value)
        self.config = StreamsConfig(application_id="app", bootstrap_servers="not-used:9092")
        session: Any = None
        self.supervisor = StageSupervisor(
            plan(self.config), self.config, session, self.failures.append, self.clock
        )
        self.supervisor.start()
        wait_for(self._is_waiting.is_set, 30, "the supervisor polls the group")

    @property
    def state(self) -> str:
        return self.supervisor.tracker.status.state

    @property
    def active(self) -> list[str]:
        return [query.id for query in self.queries if query.is_active]

    def run_rounds(self, number: int = 1) -> None:
        """Run this number of complete rounds."""
        for _ in range(number):
            assert len(self.active) <= 1
            self._is_waiting.clear()
            self._allowed.release()
            wait_for(self._is_waiting.is_set, 30, "the supervisor has completed a round")
        assert len(self.active) <= 1

    def run_rounds_after_backoff(self, number: int = 2) -> None:
        """Run rounds after all backoffs have expired."""
        self.clock.advance(LONG_MS)
        self.run_rounds(number)

    def end(self) -> None:
        """Close the supervisor, which makes its last round."""
        self.supervisor.request_close(1.0)
        self._allowed.release(10)
        assert self.supervisor.await_closed(30)

    # ---- the election

    def _election(self, plan: StagePlan, config: StreamsConfig, on_lost: Any) -> SupervisorHarness:
        self.on_lost = on_lost
        return self

    def poll(self, timeout_s: float) -> None:
        self._is_waiting.set()
        self._allowed.acquire()
        if self.errors:
            raise self.errors.pop(0)
        if self.loses_ownership:
            self.loses_ownership = self.is_owner = False
            self.on_lost()

    def committed_offsets(self, partitions: int) -> tuple[dict[int, int], str | None]:
        return {place.partition: end for place, end in self.committed.items()}, None

    def commit(self, finished: Mapping[TopicPartition, int], query: str) -> bool:
        if self.accepts_commits:
            self.committed |= finished
        return self.accepts_commits

    def close(self) -> None:
        self.closed.append("queries running" if self.active else "no queries")

    # ---- Spark and the broker

    def _query(
        self, session: Any, plan: StagePlan, config: StreamsConfig, partitions: int, finished: Any
    ) -> Query:
        self.queries.append(Query(len(self.queries)))
        self.started_at.append(finished[0])
        return self.queries[-1]

    def partition_counts(self, topics: set[str]) -> dict[str, int]:
        return dict.fromkeys(topics, 1)

    def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Future[Any]]:
        self.purged.append(before)
        futures: dict[TopicPartition, Future[Any]] = {place: Future() for place in before}
        for future in futures.values():
            if self.purge_error is None:
                future.set_result(None)
            else:
                future.set_exception(self.purge_error)
        return futures


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[SupervisorHarness]:
    harness = SupervisorHarness(monkeypatch)
    yield harness
    harness.end()


def test_a_query_runs_while_this_driver_is_the_owner(harness: SupervisorHarness) -> None:
    harness.is_owner = False
    harness.run_rounds(2)
    assert (harness.active, harness.state) == ([], "standby")
    harness.is_owner = True
    harness.run_rounds(2)
    assert (harness.active, harness.state) == (["query-0"], "running")


def test_an_election_error_stops_the_query(harness: SupervisorHarness) -> None:
    """Detects a query that is dropped without being stopped, so that two run after the backoff."""
    harness.run_rounds()
    harness.errors.append(DENIED)
    harness.run_rounds()
    assert (harness.active, harness.state, harness.failures) == ([], "failed", [DENIED])
    harness.run_rounds(2)
    assert len(harness.queries) == 1
    harness.run_rounds_after_backoff()
    assert (harness.active, harness.state) == (["query-1"], "running")


def test_no_query_starts_before_the_previous_one_is_stopped(harness: SupervisorHarness) -> None:
    """Detects a second query while Spark fails to stop the first, and a supervisor that treats a
    query stopped late as ended."""
    harness.run_rounds()
    harness.queries[0].stop_errors += [RuntimeError("py4j")] * 3
    harness.errors.append(DENIED)
    harness.run_rounds(3)
    assert (harness.active, harness.state) == (["query-0"], "failed")
    harness.run_rounds_after_backoff(1)
    assert (harness.active, len(harness.failures)) == (["query-0"], 2)
    harness.run_rounds_after_backoff(2)
    assert (harness.active, harness.state) == (["query-1"], "running")
    assert len(harness.queries) == 2


@pytest.mark.parametrize("fail", [False, True])
def test_ownership_is_released_after_the_query_is_stopped(
    harness: SupervisorHarness, fail: bool
) -> None:
    """Detects a query that runs concurrently with that of the next owner."""
    harness.run_rounds()
    if fail:
        harness.queries[0].stop_errors.append(RuntimeError("py4j"))
    harness.loses_ownership = True
    harness.run_rounds()
    harness.run_rounds_after_backoff()
    assert (harness.active, harness.state) == ([], "standby")


def test_an_error_during_close_leaves_no_query(harness: SupervisorHarness) -> None:
    """Detects a supervisor that does not stop the query if its last round fails."""
    harness.run_rounds()
    harness.errors.append(DENIED)
    harness.end()
    assert (harness.active, harness.state) == ([], "closed")
    assert harness.closed == ["no queries", "no queries"]


def test_a_query_that_could_not_be_stopped_is_logged(
    harness: SupervisorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.run_rounds()
    harness.queries[0].stop_errors += [RuntimeError("py4j")] * 10
    with caplog.at_level(logging.ERROR, "millstream"):
        harness.end()
    assert (
        "the DataFrame function stage could not be stopped and may still be running" in caplog.text
    )


def test_a_failed_query_is_restarted_after_a_backoff(harness: SupervisorHarness) -> None:
    harness.run_rounds()
    harness.queries[0].complete_batch(7)
    harness.run_rounds()
    failure = StreamsError("the function raised")
    harness.queries[0].fail(failure)
    harness.run_rounds(2)
    assert (harness.active, harness.state, harness.failures) == ([], "failed", [failure])
    assert harness.supervisor.tracker.status.restarts == 1
    harness.clock.advance(499)
    harness.run_rounds(2)
    assert harness.active == []
    harness.clock.advance(1_000)
    harness.run_rounds()
    assert harness.active == ["query-1"]
    assert harness.started_at == [{}, {0: 7}]


def test_the_handler_is_not_called_for_unavailable_brokers(harness: SupervisorHarness) -> None:
    """For `task.timeout.ms` since the last batch, as in stream threads."""
    harness.run_rounds()
    for _ in range(2):
        harness.queries[-1].fail(BrokerUnavailableError("no answer"))
        harness.run_rounds()
        harness.run_rounds_after_backoff(1)
    assert harness.failures == []
    harness.clock.advance(harness.config.task_timeout_ms)
    harness.queries[-1].fail(BrokerUnavailableError("no answer"))
    harness.run_rounds()
    assert len(harness.failures) == 1


def test_a_completed_batch_ends_the_outage(harness: SupervisorHarness) -> None:
    harness.run_rounds()
    harness.queries[-1].fail(BrokerUnavailableError("no answer"))
    harness.run_rounds()
    harness.clock.advance(harness.config.task_timeout_ms)
    harness.run_rounds()
    harness.queries[-1].complete_batch(7)
    harness.run_rounds()
    harness.queries[-1].fail(BrokerUnavailableError("no answer"))
    harness.run_rounds()
    assert harness.failures == []


def test_only_committed_records_are_deleted(harness: SupervisorHarness) -> None:
    """Otherwise another driver would continue at records that have been deleted."""
    harness.run_rounds()
    harness.accepts_commits = False
    harness.queries[0].complete_batch(7)
    harness.run_rounds_after_backoff()
    assert [before for before in harness.purged if before] == []
    harness.accepts_commits = True
    harness.run_rounds_after_backoff()
    assert [before for before in harness.purged if before] == [{PLACE: 7}]
    harness.run_rounds_after_backoff()
    assert [before for before in harness.purged if before] == [{PLACE: 7}]


def test_failed_deletions_are_repeated(harness: SupervisorHarness) -> None:
    harness.run_rounds()
    harness.purge_error = AccessDeniedError("not yet")
    harness.queries[0].complete_batch(7)
    harness.run_rounds_after_backoff(1)
    harness.purge_error = None
    harness.run_rounds_after_backoff(1)
    assert [before for before in harness.purged if before] == [{PLACE: 7}, {PLACE: 7}]


def test_records_are_deleted_once_per_interval(harness: SupervisorHarness) -> None:
    harness.run_rounds()
    for offset in (7, 8, 9):
        harness.queries[0].complete_batch(offset)
        harness.run_rounds()
    assert harness.purged == []
    harness.run_rounds_after_backoff(3)
    assert harness.purged == [{PLACE: 9}]


def test_a_pause_stops_the_query_and_keeps_ownership(harness: SupervisorHarness) -> None:
    harness.run_rounds()
    harness.queries[0].last_batch = 7
    harness.supervisor.pause(True)
    harness.run_rounds(2)
    assert (harness.active, harness.state, harness.is_owner) == ([], "paused", True)
    assert harness.committed == {PLACE: 7}
    harness.supervisor.pause(False)
    harness.run_rounds()
    assert (harness.active, harness.state) == (["query-1"], "running")


def test_an_ended_query_is_not_restarted(harness: SupervisorHarness) -> None:
    harness.run_rounds()
    harness.queries[0].is_active = False
    harness.run_rounds_after_backoff(3)
    assert (len(harness.queries), harness.state) == (1, "ended")


def test_closing_waits_no_longer_than_requested(harness: SupervisorHarness) -> None:
    harness.run_rounds()
    harness.end()
    assert harness.queries[0].timeout_s == 1.0
    assert harness.closed == ["no queries", "no queries"]
