"""What is decided from: made of what threads tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.owned_tasks import owned

from millstream.application.elastic.decisions import Look
from millstream.application.elastic.looking import Looking
from millstream.application.story.events import Restore
from millstream.metrics.values import Metric
from millstream.runtime.states import OwnedTask, ThreadState

RUNNING = ThreadState.RUNNING
COPY = Restore(
    *("counts", "counts-changelog", 0, "1_0", "a", "standby"), 0, 10, 20, 10, "running", 0, 0
)


def told(
    polls: float,
    processed: dict[str, int],
    lags: dict[str, int],
    shares: dict[str, float] | None = None,
) -> list[Metric]:
    """Of a thread: the part of its time that it polls, what its tasks have processed or not, and
    what part of the work each is."""
    return [
        Metric("process-total", {"thread-id": "t"}, 99.0, "stream-thread-metrics"),
        Metric("poll-ratio", {"thread-id": "t"}, polls, "stream-thread-metrics"),
        *(
            Metric("process-total", {"task-id": task}, float(total), "stream-task-metrics")
            for task, total in processed.items()
        ),
        *(
            Metric("records-lag", {"task-id": task}, float(lag), "consumer-fetch-manager-metrics")
            for task, lag in lags.items()
        ),
        *(
            Metric("active-process-ratio", {"task-id": task}, share, "stream-task-metrics")
            for task, share in (shares or {}).items()
        ),
    ]


class Threads:
    """Two threads that run two tasks each, and what is looked at beside."""

    def __init__(self) -> None:
        self.looking = Looking(60_000, warm_lag=100, alone=lambda names: ",".join(sorted(names)))
        self.states: dict[str, tuple[ThreadState, dict[str, OwnedTask]]] = {
            "a": (RUNNING, owned({"0_0": "RUNNING", "1_1": "RUNNING"})),
            "b": (RUNNING, owned({"0_2": "RUNNING", "1_0": "STANDBY"})),
        }
        self.metrics = {
            "a": told(0.25, {"0_0": 7, "1_1": 3}, {"0_0": 5, "1_1": 0}, {"0_0": 0.5, "1_1": 0.5}),
            "b": told(0.75, {"0_2": 5}, {"0_2": 1}, {"0_2": 1.0}),
        }

    def look(self, now_ms: int = 0, **others: Any) -> Look:
        given = {"leaving": frozenset(), "restores": (), "paused": False, **others}
        leaving, restores = given["leaving"], given["restores"]
        return self.looking.look(
            now_ms, self.states, leaving, self.metrics, restores, paused=given["paused"]
        )


def test_what_threads_tell_is_summed_up() -> None:
    look = Threads().look(7)
    assert look == Look(
        now_ms=7,
        threads=2,
        tasks=3,
        shares=True,
        lags={"0": 6, "1": 0},
        processed={"0": 12, "1": 3},
        busy=1.0,
        fullest=0.75,
        work={"0": 0.625, "1": 0.375},
        alone="a,b",
    )


def test_what_was_processed_only_grows() -> None:
    """Though a thread that is started again counts from zero, and one that goes tells no more."""
    threads = Threads()
    assert threads.look().processed == {"0": 12, "1": 3}
    threads.metrics["a"] = told(0.0, {"0_0": 9, "1_1": 3}, {})
    assert threads.look().processed == {"0": 14, "1": 3}
    threads.metrics["a"] = told(0.0, {"0_0": 3}, {})
    assert threads.look().processed == {"0": 17, "1": 3}
    del threads.states["a"]
    assert threads.look().processed == {"0": 17, "1": 3}
    threads.metrics["b"] = told(0.0, {"0_2": 6, "1_1": 1}, {})
    assert threads.look().processed == {"0": 18, "1": 4}


def test_a_task_that_lags_alone_on_its_thread_shares_it_with_nobody() -> None:
    threads = Threads()
    threads.metrics = {"a": told(0.0, {}, {}), "b": told(0.0, {}, {"0_2": 1_000})}
    assert not threads.look().shares


def test_nothing_may_change_while_something_does() -> None:
    threads = Threads()
    assert threads.look(paused=True).unsettled == "the application is paused"
    leaving = threads.look(leaving=frozenset({"b"}))
    assert (leaving.threads, leaving.unsettled) == (1, "1 threads close")
    behind = replace(COPY, end=1_000)
    assert threads.look(restores=[COPY]).unsettled == ""
    assert "warms up: it is 990 records behind" in threads.look(restores=[behind]).unsettled
    assert threads.look(restores=[replace(behind, state="suspended")]).unsettled == ""
    threads.states["b"] = (RUNNING, owned({"0_2": "RESTORING"}))
    assert threads.look().unsettled == "not all tasks run: 1 RESTORING, 2 RUNNING"
    threads.states["b"] = (ThreadState.PARTITIONS_ASSIGNED, {})
    assert threads.look().unsettled == "not all threads run: 1 PARTITIONS_ASSIGNED, 1 RUNNING"


def test_a_thread_that_waits_for_its_slot_is_late_after_a_while() -> None:
    threads = Threads()
    threads.states["b"] = (ThreadState.CREATED, {})
    assert threads.look(1_000).late == 0
    assert threads.look(60_999).late == 0
    assert threads.look(61_000).late == 1
    threads.states["b"] = (ThreadState.STARTING, {})
    assert threads.look(62_000).late == 0
    threads.states["b"] = (ThreadState.CREATED, {})
    assert threads.look(63_000).late == 0
