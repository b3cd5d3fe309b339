"""Runs pytest in a process that cannot import the C extension: `python without_speedups.py …`."""

from __future__ import annotations

import os
import sys

import pytest

if __name__ == "__main__":
    sys.modules["millstream.native.library"] = None  # type: ignore[assignment]
    # For `support.strictness`, which decides whether tests of the extension may be skipped.
    os.environ["MILLSTREAM_EXTENSION"] = "omit"
    # All tests run in this process, because xdist's workers could import the extension.
    options = ("-p", "no:cacheprovider", "-p", "no:xdist", "-rs")
    raise SystemExit(pytest.main([*options, *sys.argv[1:]]))
