"""Thousands of stores are made and thrown away here: in memory, where the machine lets us."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest
from conformance.oracle.process import memory


@pytest.fixture(autouse=True, scope="module")
def _temporary_files_in_memory() -> Iterator[None]:
    before = tempfile.tempdir
    tempfile.tempdir = memory() or before
    yield
    tempfile.tempdir = before
