"""Style tests parse each module of the package once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.source_modules import syntax_nodes


@pytest.fixture(scope="module", autouse=True)
def _parsed_once() -> Iterator[None]:
    """Release the syntax trees, which would slow down the garbage collection of later tests."""
    yield
    syntax_nodes.cache_clear()
