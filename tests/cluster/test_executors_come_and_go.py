"""Executors that Spark starts when there is much to do, and gives up with notice."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.cluster.masters import Cluster
from support.cluster.submitted import TASKS, TIMEOUT_S, Submitted, measured, submitted
from support.meanwhile import meanwhile
from support.running.instances import last_told
from support.waiting import wait_for

pytestmark = pytest.mark.slow

EXECUTOR = "CoarseGrainedExecutorBackend"
GIVES_NOTICE = {"spark.decommission.enabled": "true"}
#: Executors of two slots that come when tasks wait, and go when they have been idle for a while.
DYNAMIC = {
    **GIVES_NOTICE,
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.dynamicAllocation.executorIdleTimeout": "3s",
    "spark.executor.cores": "2",
}
#: 400 ids come a second, and a thread can do 125.
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
    """The hosts that have an executor."""
    return [host.name for host in cluster.workers if host.is_up and host.processes(EXECUTOR)]


def test_threads_leave_a_host_that_is_to_go(cluster: Cluster, tmp_path: Path) -> None:
    """Goal: a worker that is given notice, as the node of a spot instance is, loses its threads
    before it goes: they commit and leave, so nothing is repeated though the guarantee would allow
    it, and Spark's executor can end by itself."""
    with submitted(cluster, tmp_path, GIVES_NOTICE, num_standby_replicas=1) as application:
        host = application.busiest()
        application.wait_warm()
        assert host.kill("deploy.worker.Worker", signal.SIGPWR)
        wait_for(
            lambda: not host.processes(EXECUTOR),
            TIMEOUT_S,
            lambda: f"it has gone by itself: {last_told(application.driver)}",
        )
        application.wait_settled()
        assert "decommissioned" in application.driver.errors
    host.kill("deploy.worker.Worker")
    cluster.start_worker(host)


def test_executors_come_for_a_load_and_go_when_it_is_over(cluster: Cluster, tmp_path: Path) -> None:
    """Goal: with dynamic allocation a thread that has no slot brings an executor, and threads that
    go release it; no record is lost or repeated."""
    application = Submitted(cluster, tmp_path, DYNAMIC, **ELASTIC)
    most = 0

    def threads() -> int:
        """How many run; 0 while some begin or end."""
        now = last_told(application.driver)
        return len(now["pids"]) if now["state"] == "RUNNING" and now["active"] == TASKS else 0

    def watch() -> None:
        nonlocal most
        most = max(most, len(last_told(application.driver).get("pids", [])))

    def told() -> str:
        return f"{with_executors(cluster)}, {last_told(application.driver)}"

    with ExitStack() as last:
        last.callback(application.end)
        application.submit()
        wait_for(lambda: last_told(application.driver), TIMEOUT_S, "it tells something")
        wait_for(lambda: threads() == 1, TIMEOUT_S, told)
        assert len(with_executors(cluster)) == 1
        with meanwhile(watch, 0.2):
            with application.records.arriving():
                wait_for(lambda: threads() >= 3, TIMEOUT_S, told)
                assert len(with_executors(cluster)) > 1
            wait_for(lambda: threads() == 1, TIMEOUT_S, told)
        wait_for(lambda: len(with_executors(cluster)) == 1, TIMEOUT_S, told)
        assert most <= 4
        account = application.check()
        measured.append(f"executors came and went: {account.written} ids, {most} threads at most")
