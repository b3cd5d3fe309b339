"""Skips made visible: where it counts, a test that this machine can run may not be skipped.

Strict is what continuous integration is: with `CI` or `MILLSTREAM_STRICT` set to anything but
nothing, `0` or `false`, a skip is a failure, unless its reason is one of `LACKING` and true.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from millstream.embedded.java import find_java
from millstream.errors import EmbeddedKafkaError
from support.cluster.world import hindrance


def has_compiler() -> bool:
    """Whether there is a JDK, not only a Java runtime."""
    try:
        return find_java().path.resolve().with_name("javac").is_file()
    except EmbeddedKafkaError:
        return False


#: How the reason of a skip begins where the C extension is not there.
ABSENT = "There is no C extension"


def has_speedups() -> bool:
    """Whether the C extension can be built, and nobody has said that it is not to be."""
    headers = Path(sysconfig.get_path("include"), "Python.h")
    asked = not os.environ.get("MILLSTREAM_WITHOUT_SPEEDUPS")
    return asked and headers.is_file() and any(map(shutil.which, ("cc", "gcc", "clang")))


def has_browser() -> bool:
    """Whether there is Debian's Chromium, and what drives it."""
    return shutil.which("chromium") is not None and shutil.which("chromedriver") is not None


def promtool() -> str | None:
    """Prometheus' own tool, on the PATH or where `.ci/setup` puts it."""
    return shutil.which("promtool") or shutil.which(Path(sys.executable).with_name("promtool"))


#: What a machine may lack: how the reason of a skip says it, and whether this one lacks it.
LACKING: Mapping[str, Callable[[], bool]] = {
    "There is no javac": lambda: not has_compiler(),
    "Decaton's jars are not there": lambda: not os.environ.get("MILLSTREAM_DECATON_JARS"),
    "There is no Chromium with its driver": lambda: not has_browser(),
    "There can be no hosts": lambda: hindrance() is not None,
    "There can be no user namespaces": lambda: sys.platform != "linux" or os.geteuid() != 0,
    ABSENT: lambda: not has_speedups(),
    "there is no promtool": lambda: promtool() is None,
    "openssl is not installed": lambda: shutil.which("openssl") is None,
}


def is_strict(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether skips are failures."""
    asked = (environment.get(name, "") for name in ("CI", "MILLSTREAM_STRICT"))
    return any(value.lower() not in ("", "0", "false") for value in asked)


def is_allowed(reason: str) -> bool:
    """Whether a skip is for something that this machine lacks."""
    return any(said in reason and lacks() for said, lacks in LACKING.items())


def forbid_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make a failure of a skip that is not allowed. A failure that was expected is no skip."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not is_allowed(reason):
        report.outcome = "failed"
        report.longrepr = (
            f"{report.nodeid} may not be skipped here ({reason}). CI or MILLSTREAM_STRICT is set, "
            "and what a machine may lack is listed in tests/support/strictness.py."
        )
