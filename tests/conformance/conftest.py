"""Temporary files are in memory if possible, since the tests create thousands of stores."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest
from conformance.oracle.process import memory_folder


@pytest.fixture(autouse=True, scope="module")
def _temporary_files_in_memory() -> Iterator[None]:
    previous = tempfile.tempdir
    tempfile.tempdir = memory_folder() or previous
    yield
    tempfile.tempdir = previous
