"""The released files, built once for all tests of this folder."""

from __future__ import annotations

import pytest
from support.machine.wheels import Built, built_here


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The wheel and the sdist of this checkout."""
    return built_here(tmp_path_factory.mktemp("dist"))
