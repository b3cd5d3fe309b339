"""The keeper of a DataFrame stage: one query at a time, stopped before it is let go."""

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
from millstream.errors import AccessDeniedError, BrokerUnavailableError, StreamsError
from millstream.record import TopicPartition
from millstream.serdes import STRING
from millstream.structured import keeper as keeper_module
from millstream.structured.keeper import StageKeeper
from millstream.structured.plan import StagePlan, stage_plan

DENIED = AccessDeniedError("TOPIC_AUTHORIZATION_FAILED: the ACL was replaced")
INPUT = "app-stage-dataframe-input-repartition"
PLACE = TopicPartition(INPUT, 0)
#: More than the longest pause before a query is started again, and than the interval of purges.
LONG_MS = 60_000


def plan(config: StreamsConfig) -> StagePlan:
    """The plan of a stage that passes its records on."""
    builder = StreamsBuilder()
    stream = builder.stream("orders", key=STRING, value=STRING)
    stages = stream.transform_dataframe(lambda frame: frame, key=STRING, value=STRING, name="stage")
    stages.to("out")
    (stage,) = builder.build().dataframe_stages.values()
    return stage_plan(stage, config)


class Query:
    """A query of Structured Streaming: runs until it is stopped, or fails."""

    def __init__(self, number: int) -> None:
        self.id = f"query-{number}"
        self.run_id = f"run-{number}"
        self.is_active = True
        self.progress: Mapping[str, Any] | None = None
        self.error: StreamsError | None = None
        self.stop_errors: list[Exception] = []
        self.patience_s: float | None = None
        #: Where the batch ends that is under way when it is stopped.
        self.last_batch: int | None = None

    def failure(self) -> StreamsError | None:
        return self.error

    def stop(self, patience_s: float) -> bool:
        if self.stop_errors:
            raise self.stop_errors.pop(0)
        self.patience_s = patience_s
        self.is_active = False
        if self.last_batch is not None:
            self.reaches(self.last_batch)
        return True

    def fails(self, error: StreamsError) -> None:
        self.error, self.is_active = error, False

    def reaches(self, offset: int) -> None:
        """A batch ends before this offset of the first partition."""
        ends = {INPUT: {"0": offset}}
        source = {"endOffset": ends, "metrics": {}}
        self.progress = {"batchId": offset, "numInputRows": 1, "sources": [source]}


class Bench:
    """A keeper on its own thread, whose rounds the test lets go one by one.

    Stands in for Spark, the election and the broker: what the keeper does with them is the test's.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.is_owner = True
        self.takes_notes = True
        self.errors: list[Exception] = []
        self.queries: list[Query] = []
        self.begun_at: list[Mapping[int, int]] = []
        self.noted: dict[TopicPartition, int] = {}
        self.purged: list[Mapping[TopicPartition, int]] = []
        self.purge_error: Exception | None = None
        self.failures: list[StreamsError] = []
        self.closed: list[str] = []
        self.on_lost: Callable[[], None] = lambda: None
        self.loses = False
        self._allowed = threading.Semaphore(0)
        self._asked = 0
        self._waits = threading.Event()
        for name, value in {
            "StageQuery": self._query,
            "Election": self._election,
            "ClusterAdmin": lambda settings: self,
            "require": lambda session, names: None,
        }.items():
            monkeypatch.setattr(keeper_module, name, value)
        self.config = StreamsConfig(application_id="app", bootstrap_servers="not-used:9092")
        session: Any = None
        self.keeper = StageKeeper(
            plan(self.config), self.config, session, self.failures.append, self.clock
        )
        self.keeper.start()
        wait_for(self._waits.is_set, 30, "the keeper polls the group")

    @property
    def state(self) -> str:
        return self.keeper.meters.status.state

    @property
    def active(self) -> list[str]:
        return [query.id for query in self.queries if query.is_active]

    def rounds(self, number: int = 1) -> None:
        """Let the keeper make so many rounds, to their end."""
        for _ in range(number):
            assert len(self.active) <= 1
            self._waits.clear()
            self._allowed.release()
            wait_for(self._waits.is_set, 30, "the keeper has made a round")
        assert len(self.active) <= 1

    def later(self, number: int = 2) -> None:
        """Rounds after all pauses are over."""
        self.clock.advance(LONG_MS)
        self.rounds(number)

    def end(self) -> None:
        """Close the keeper, which makes its last round."""
        self.keeper.begin_to_close(1.0)
        self._allowed.release(10)
        assert self.keeper.await_closed(30)

    # ---- the election

    def _election(self, plan: StagePlan, config: StreamsConfig, on_lost: Any) -> Bench:
        self.on_lost = on_lost
        return self

    def poll(self, timeout_s: float) -> None:
        self._waits.set()
        self._allowed.acquire()
        if self.errors:
            raise self.errors.pop(0)
        if self.loses:
            self.loses = self.is_owner = False
            self.on_lost()

    def finished(self, partitions: int) -> tuple[dict[int, int], str | None]:
        return {place.partition: end for place, end in self.noted.items()}, None

    def note(self, finished: Mapping[TopicPartition, int], query: str) -> bool:
        if self.takes_notes:
            self.noted |= finished
        return self.takes_notes

    def close(self) -> None:
        self.closed.append("queries run" if self.active else "none runs")

    # ---- Spark and the broker

    def _query(
        self, session: Any, plan: StagePlan, config: StreamsConfig, partitions: int, finished: Any
    ) -> Query:
        self.queries.append(Query(len(self.queries)))
        self.begun_at.append(finished[0])
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
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = Bench(monkeypatch)
    yield bench
    bench.end()


def test_a_query_runs_while_this_driver_is_the_owner(bench: Bench) -> None:
    bench.is_owner = False
    bench.rounds(2)
    assert (bench.active, bench.state) == ([], "standby")
    bench.is_owner = True
    bench.rounds(2)
    assert (bench.active, bench.state) == (["query-0"], "running")


def test_an_error_of_the_election_stops_the_query(bench: Bench) -> None:
    """Hunts a query that is dropped and not stopped: after the pause there were two."""
    bench.rounds()
    bench.errors.append(DENIED)
    bench.rounds()
    assert (bench.active, bench.state, bench.failures) == ([], "failed", [DENIED])
    bench.rounds(2)
    assert len(bench.queries) == 1
    bench.later()
    assert (bench.active, bench.state) == (["query-1"], "running")


def test_a_query_that_cannot_be_stopped_has_no_successor(bench: Bench) -> None:
    """Hunts a second query beside one that Spark refused to stop, and a keeper that takes the
    query for one that has ended by itself once it is stopped after all."""
    bench.rounds()
    bench.queries[0].stop_errors += [RuntimeError("py4j")] * 3
    bench.errors.append(DENIED)
    bench.rounds(3)
    assert (bench.active, bench.state) == (["query-0"], "failed")
    bench.later(1)
    assert (bench.active, len(bench.failures)) == (["query-0"], 2)
    bench.later(2)
    assert (bench.active, bench.state) == (["query-1"], "running")
    assert len(bench.queries) == 2


@pytest.mark.parametrize("fails", [False, True])
def test_another_owner_is_let_in_when_the_query_is_stopped(bench: Bench, fails: bool) -> None:
    """Hunts a query that goes on beside the one of the next owner."""
    bench.rounds()
    if fails:
        bench.queries[0].stop_errors.append(RuntimeError("py4j"))
    bench.loses = True
    bench.rounds()
    bench.later()
    assert (bench.active, bench.state) == ([], "standby")


def test_an_error_at_the_close_leaves_no_query(bench: Bench) -> None:
    """Hunts a keeper that forgets the query when it fails on its last round."""
    bench.rounds()
    bench.errors.append(DENIED)
    bench.end()
    assert (bench.active, bench.state) == ([], "closed")
    assert bench.closed == ["none runs", "none runs"]


def test_what_could_not_be_stopped_is_reported(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.rounds()
    bench.queries[0].stop_errors += [RuntimeError("py4j")] * 10
    with caplog.at_level(logging.ERROR, "millstream"):
        bench.end()
    assert "the DataFrame function stage could not be stopped and may still run" in caplog.text


def test_a_query_that_fails_is_started_again_after_a_pause(bench: Bench) -> None:
    bench.rounds()
    bench.queries[0].reaches(7)
    bench.rounds()
    failure = StreamsError("the function raised")
    bench.queries[0].fails(failure)
    bench.rounds(2)
    assert (bench.active, bench.state, bench.failures) == ([], "failed", [failure])
    assert bench.keeper.meters.status.restarts == 1
    bench.clock.advance(499)
    bench.rounds(2)
    assert bench.active == []
    bench.clock.advance(1_000)
    bench.rounds()
    assert bench.active == ["query-1"]
    assert bench.begun_at == [{}, {0: 7}]


def test_the_handler_is_not_asked_about_brokers_that_are_away(bench: Bench) -> None:
    """For `task.timeout.ms` since the last batch, as stream threads wait for them."""
    bench.rounds()
    for _ in range(2):
        bench.queries[-1].fails(BrokerUnavailableError("no answer"))
        bench.rounds()
        bench.later(1)
    assert bench.failures == []
    bench.clock.advance(bench.config.task_timeout_ms)
    bench.queries[-1].fails(BrokerUnavailableError("no answer"))
    bench.rounds()
    assert len(bench.failures) == 1


def test_a_batch_that_ends_well_ends_the_outage(bench: Bench) -> None:
    bench.rounds()
    bench.queries[-1].fails(BrokerUnavailableError("no answer"))
    bench.rounds()
    bench.clock.advance(bench.config.task_timeout_ms)
    bench.rounds()
    bench.queries[-1].reaches(7)
    bench.rounds()
    bench.queries[-1].fails(BrokerUnavailableError("no answer"))
    bench.rounds()
    assert bench.failures == []


def test_only_noted_records_are_deleted(bench: Bench) -> None:
    """Hunts records that are deleted before the group has taken the position: another driver would
    begin before them and find them gone."""
    bench.rounds()
    bench.takes_notes = False
    bench.queries[0].reaches(7)
    bench.later()
    assert [before for before in bench.purged if before] == []
    bench.takes_notes = True
    bench.later()
    assert [before for before in bench.purged if before] == [{PLACE: 7}]
    bench.later()
    assert [before for before in bench.purged if before] == [{PLACE: 7}]


def test_records_that_were_not_deleted_are_deleted_later(bench: Bench) -> None:
    bench.rounds()
    bench.purge_error = AccessDeniedError("not yet")
    bench.queries[0].reaches(7)
    bench.later(1)
    bench.purge_error = None
    bench.later(1)
    assert [before for before in bench.purged if before] == [{PLACE: 7}, {PLACE: 7}]


def test_records_are_deleted_once_in_an_interval(bench: Bench) -> None:
    bench.rounds()
    for offset in (7, 8, 9):
        bench.queries[0].reaches(offset)
        bench.rounds()
    assert bench.purged == []
    bench.later(3)
    assert bench.purged == [{PLACE: 9}]


def test_a_pause_stops_the_query_and_keeps_the_stage(bench: Bench) -> None:
    bench.rounds()
    bench.queries[0].last_batch = 7
    bench.keeper.pause(True)
    bench.rounds(2)
    assert (bench.active, bench.state, bench.is_owner) == ([], "paused", True)
    assert bench.noted == {PLACE: 7}
    bench.keeper.pause(False)
    bench.rounds()
    assert (bench.active, bench.state) == (["query-1"], "running")


def test_a_query_with_nothing_more_to_do_is_not_started_again(bench: Bench) -> None:
    bench.rounds()
    bench.queries[0].is_active = False
    bench.later(3)
    assert (len(bench.queries), bench.state) == (1, "ended")


def test_closing_waits_no_longer_than_told(bench: Bench) -> None:
    bench.rounds()
    bench.end()
    assert bench.queries[0].patience_s == 1.0
    assert bench.closed == ["none runs", "none runs"]
