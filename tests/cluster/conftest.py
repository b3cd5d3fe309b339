"""One cluster for all tests of this folder, if they run in their own namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.cluster.masters import Cluster
from support.cluster.submitted import Submitted, measured, submitted
from support.cluster.world import is_inside

from millstream import EXACTLY_ONCE_V2


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster. Tests must restore its hosts."""
    if not is_inside():
        pytest.skip("These tests create hosts, in namespaces that `make cluster` creates")
    with Cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def application(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Submitted]:
    """The application under load. At the end, the output has each id once."""
    folder = tmp_path_factory.mktemp("application")
    settings: dict[str, Any] = {
        "processing_guarantee": EXACTLY_ONCE_V2,
        "num_standby_replicas": 1,
    }
    with submitted(cluster, folder, **settings) as running:
        yield running


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report the measured times."""
    for line in measured:
        terminalreporter.write_line(line)
