"""Load samples, computed from the metrics of threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.owned_tasks import owned

from millstream.application.autoscaling.policy import LoadSample
from millstream.application.autoscaling.sampler import LoadSampler
from millstream.application.event_log.event_types import RestoreProgress
from millstream.metrics.values import Metric
from millstream.runtime.states.thread_states import OwnedTask, ThreadState

RUNNING = ThreadState.RUNNING
COPY = RestoreProgress(
    *("counts", "counts-changelog", 0, "1_0", "a", "standby"), 0, 10, 20, 10, "running", 0, 0
)


def thread_metrics(
    polls: float,
    processed: dict[str, int],
    lags: dict[str, int],
    shares: dict[str, float] | None = None,
) -> list[Metric]:
    """Return the poll ratio of a thread, and the processed records, lags and shares of the work of
    its tasks."""
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
    """Two threads with two tasks each, and the other inputs of a sample."""

    def __init__(self) -> None:
        self.sampler = LoadSampler(
            60_000, warm_lag=100, removal_obstacle=lambda names: ",".join(sorted(names))
        )
        self.states: dict[str, tuple[ThreadState, dict[str, OwnedTask]]] = {
            "a": (RUNNING, owned({"0_0": "RUNNING", "1_1": "RUNNING"})),
            "b": (RUNNING, owned({"0_2": "RUNNING", "1_0": "STANDBY"})),
        }
        self.metrics = {
            "a": thread_metrics(
                0.25, {"0_0": 7, "1_1": 3}, {"0_0": 5, "1_1": 0}, {"0_0": 0.5, "1_1": 0.5}
            ),
            "b": thread_metrics(0.75, {"0_2": 5}, {"0_2": 1}, {"0_2": 1.0}),
        }

    def sample(self, now_ms: int = 0, **changed: Any) -> LoadSample:
        inputs = {"leaving": frozenset(), "restores": (), "paused": False, **changed}
        leaving, restores = inputs["leaving"], inputs["restores"]
        return self.sampler.sample(
            now_ms, self.states, leaving, self.metrics, restores, paused=inputs["paused"]
        )


def test_metrics_of_threads_are_summed_up() -> None:
    sample = Threads().sample(7)
    assert sample == LoadSample(
        now_ms=7,
        threads=2,
        tasks=3,
        shares=True,
        lags={"0": 6, "1": 0},
        processed={"0": 12, "1": 3},
        busy=1.0,
        max_busy=0.75,
        work={"0": 0.625, "1": 0.375},
        removal_obstacle="a,b",
    )


def test_processed_records_never_decrease() -> None:
    """A restarted thread counts from zero, and a removed thread has no metrics."""
    threads = Threads()
    assert threads.sample().processed == {"0": 12, "1": 3}
    threads.metrics["a"] = thread_metrics(0.0, {"0_0": 9, "1_1": 3}, {})
    assert threads.sample().processed == {"0": 14, "1": 3}
    threads.metrics["a"] = thread_metrics(0.0, {"0_0": 3}, {})
    assert threads.sample().processed == {"0": 17, "1": 3}
    del threads.states["a"]
    assert threads.sample().processed == {"0": 17, "1": 3}
    threads.metrics["b"] = thread_metrics(0.0, {"0_2": 6, "1_1": 1}, {})
    assert threads.sample().processed == {"0": 18, "1": 4}


def test_a_lagging_task_with_its_own_thread_does_not_share_it() -> None:
    threads = Threads()
    threads.metrics = {
        "a": thread_metrics(0.0, {}, {}),
        "b": thread_metrics(0.0, {}, {"0_2": 1_000}),
    }
    assert not threads.sample().shares


def test_scaling_is_blocked_during_other_changes() -> None:
    threads = Threads()
    assert threads.sample(paused=True).blocked_by == "the application is paused"
    leaving = threads.sample(leaving=frozenset({"b"}))
    assert (leaving.threads, leaving.blocked_by) == (1, "1 threads are closing")
    behind = replace(COPY, end=1_000)
    assert threads.sample(restores=[COPY]).blocked_by == ""
    assert "catching up: it is 990 records behind" in threads.sample(restores=[behind]).blocked_by
    assert threads.sample(restores=[replace(behind, state="suspended")]).blocked_by == ""
    threads.states["b"] = (RUNNING, owned({"0_2": "RESTORING"}))
    assert threads.sample().blocked_by == "not all tasks are running: 1 RESTORING, 2 RUNNING"
    threads.states["b"] = (ThreadState.PARTITIONS_ASSIGNED, {})
    assert (
        threads.sample().blocked_by
        == "not all threads are running: 1 PARTITIONS_ASSIGNED, 1 RUNNING"
    )


def test_a_thread_without_a_slot_is_overdue_after_a_while() -> None:
    threads = Threads()
    threads.states["b"] = (ThreadState.CREATED, {})
    assert threads.sample(1_000).overdue == 0
    assert threads.sample(60_999).overdue == 0
    assert threads.sample(61_000).overdue == 1
    threads.states["b"] = (ThreadState.STARTING, {})
    assert threads.sample(62_000).overdue == 0
    threads.states["b"] = (ThreadState.CREATED, {})
    assert threads.sample(63_000).overdue == 0
