"""Faults on a cluster, one after another, with an account of all ids after each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import pytest
from support.cluster.masters import Cluster
from support.cluster.submitted import Submitted, measured

from millstream import EXACTLY_ONCE_V2

pytestmark = pytest.mark.slow

ROUNDS = 12


def test_exactly_once_under_consecutive_faults(cluster: Cluster, tmp_path: Path) -> None:
    """Goal: a repeated id is detected right after the fault that caused it, with its positions in
    all topics; no records are deleted here."""
    application = Submitted(
        cluster,
        tmp_path,
        processing_guarantee=EXACTLY_ONCE_V2,
        num_standby_replicas=1,
        repartition_purge_interval_ms=3_600_000,
    )

    def worker(recovered: Callable[[], None]) -> None:
        with cluster.powered_off(application.busiest()):
            recovered()

    def broker(recovered: Callable[[], None]) -> None:
        cluster.crash_broker()

    def driver(recovered: Callable[[], None]) -> None:
        application.crash_driver_host()

    try:
        application.submit()
        application.wait_settled()
        application.records.write(5_000)
        for number, fault in enumerate(islice(cycle((worker, broker, driver, broker)), ROUNDS)):
            with (
                application.records.continuous_input(),
                application.measured(f"fault {number}, {fault.__name__}") as recovered,
            ):
                fault(recovered)
            account = application.check()
            measured.append(f"after that {account.written} ids, {account.repeated} repeated")
    finally:
        application.end()
