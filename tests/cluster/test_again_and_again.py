"""What dies on a cluster, one after the other, with an account of all ids after each."""

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


def test_exactly_once_over_one_fault_after_the_other(cluster: Cluster, tmp_path: Path) -> None:
    """Goal: an id that is repeated is found right after the fault that repeated it, with its places
    in all topics, of which nothing is deleted here."""
    application = Submitted(
        cluster,
        tmp_path,
        processing_guarantee=EXACTLY_ONCE_V2,
        num_standby_replicas=1,
        repartition_purge_interval_ms=3_600_000,
    )

    def worker(recovered: Callable[[], None]) -> None:
        with cluster.without(application.busiest()):
            recovered()

    def broker(recovered: Callable[[], None]) -> None:
        cluster.crash_broker()

    def driver(recovered: Callable[[], None]) -> None:
        application.crash_drivers_host()

    try:
        application.submit()
        application.wait_settled()
        application.records.write(5_000)
        for number, fault in enumerate(islice(cycle((worker, broker, driver, broker)), ROUNDS)):
            with (
                application.records.arriving(),
                application.measured(f"fault {number}, {fault.__name__}") as recovered,
            ):
                fault(recovered)
            account = application.check()
            measured.append(f"after it {account.written} ids, {account.repeated} repeated")
    finally:
        application.end()
