"""Each host of a cluster dies in turn, without a word, while records come."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.cluster.standalone import Cluster
from support.cluster.submitted import Submitted, submitted

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[EXACTLY_ONCE_V2, AT_LEAST_ONCE])
def application(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Submitted]:
    """The application under load. At the end, all ids are there, as often as was promised."""
    folder = tmp_path_factory.mktemp("application")
    with submitted(cluster, folder, processing_guarantee=request.param) as running:
        yield running


@pytest.mark.parametrize("name", ["worker1", "worker2", "worker3"])
def test_a_worker_dies(cluster: Cluster, application: Submitted, name: str) -> None:
    """Goal: other hosts take the tasks of a host that dies; nothing is lost.

    Method: power off, under load, until everything is settled on the others; then it comes back.
    """
    host = cluster.worker(name)
    before = application.on_hosts()
    with application.records.fault():
        host.die()
        caught_up = application.wait_caught_up()
        settled = application.wait_settled()
        print(name, before, application.on_hosts(), caught_up, settled)
    host.boot()
    cluster.start_worker(host)
