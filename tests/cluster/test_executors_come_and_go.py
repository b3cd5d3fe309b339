"""Dynamic allocation and decommissioning of executors."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.background import background
from support.cluster.masters import Cluster
from support.cluster.submitted import TASKS, TIMEOUT_S, Submitted, measured, submitted
from support.running.instances import last_report
from support.waiting import wait_for

pytestmark = pytest.mark.slow

EXECUTOR = "CoarseGrainedExecutorBackend"
DECOMMISSION = {"spark.decommission.enabled": "true"}
#: Executors with two slots that start for waiting tasks and stop when they are idle.
DYNAMIC = {
    **DECOMMISSION,
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.dynamicAllocation.executorIdleTimeout": "3s",
    "spark.executor.cores": "2",
}
#: 400 ids are written per second, and a thread can process 125.
ELASTIC = {
    "num_stream_threads": [1, 4],
    "takes_ms": 8,
    "num_standby_replicas": 1,
    "commit_interval_ms": 1_000,
    "probing_rebalance_interval_ms": 60_000,
    "elastic_lag_target_ms": 4_000,
    "elastic_cooldown_ms": 4_000,
    "metrics_sample_window_ms": 1_000,
}


def with_executors(cluster: Cluster) -> list[str]:
    """The hosts with an executor."""
    return [host.name for host in cluster.workers if host.is_up and host.processes(EXECUTOR)]


def test_threads_leave_a_decommissioned_host(cluster: Cluster, tmp_path: Path) -> None:
    """Goal: when a worker is decommissioned, like the node of a spot instance, its threads commit
    and leave first, so that no record is repeated even under at-least-once, and Spark's executor
    can exit."""
    with submitted(cluster, tmp_path, DECOMMISSION, num_standby_replicas=1) as application:
        host = application.busiest()
        application.wait_warm()
        assert host.kill("deploy.worker.Worker", signal.SIGPWR)
        wait_for(
            lambda: not host.processes(EXECUTOR),
            TIMEOUT_S,
            lambda: f"the executor has exited: {last_report(application.driver)}",
        )
        application.wait_settled()
        assert "decommissioned" in application.driver.errors
    host.kill("deploy.worker.Worker")
    cluster.start_worker(host)


def test_executors_scale_with_the_load(cluster: Cluster, tmp_path: Path) -> None:
    """Goal: with dynamic allocation, a thread without a slot causes a new executor, and stopping
    threads release executors; no record is lost or repeated."""
    application = Submitted(cluster, tmp_path, DYNAMIC, **ELASTIC)
    max_threads = 0

    def threads() -> int:
        """The number of running threads; 0 while threads start or stop."""
        now = last_report(application.driver)
        return len(now["pids"]) if now["state"] == "RUNNING" and now["active"] == TASKS else 0

    def watch() -> None:
        nonlocal max_threads
        max_threads = max(max_threads, len(last_report(application.driver).get("pids", [])))

    def describe_state() -> str:
        return f"{with_executors(cluster)}, {last_report(application.driver)}"

    with ExitStack() as last:
        last.callback(application.end)
        application.submit()
        wait_for(
            lambda: last_report(application.driver), TIMEOUT_S, "the application reports its state"
        )
        wait_for(lambda: threads() == 1, TIMEOUT_S, describe_state)
        assert len(with_executors(cluster)) == 1
        with background(watch, 0.2):
            with application.records.continuous_input():
                wait_for(lambda: threads() >= 3, TIMEOUT_S, describe_state)
                assert len(with_executors(cluster)) > 1
            wait_for(lambda: threads() == 1, TIMEOUT_S, describe_state)
        wait_for(lambda: len(with_executors(cluster)) == 1, TIMEOUT_S, describe_state)
        assert max_threads <= 4
        account = application.check()
        measured.append(f"dynamic allocation: {account.written} ids, at most {max_threads} threads")
