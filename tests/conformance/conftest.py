"""Thousands of stores are made and thrown away here: in memory, where the machine lets us."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")


@pytest.fixture(autouse=True, scope="module")
def _temporary_files_in_memory() -> Iterator[None]:
    """On a busy disk the tests take five times as long."""
    before = tempfile.tempdir
    if os.access(_MEMORY, os.W_OK):
        tempfile.tempdir = str(_MEMORY)
    yield
    tempfile.tempdir = before
