"""Makes skips visible: in a strict run, a test that this machine can run must not be skipped.

A run is strict if `CI` or `MILLSTREAM_STRICT` is set to anything but an empty string, `0` or
`false`, as in continuous integration. A skip is a failure then, unless its reason is one of
`LACKING` and true.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from extension.variants import VariantError, sanitizer_runtimes

from millstream.embedded.java import find_java
from millstream.errors import EmbeddedKafkaError
from millstream.kafka.speedups import Speedups, chosen_speedups, describe_speedups
from support.cluster.world import unavailable_reason


def has_compiler() -> bool:
    """Whether a JDK is installed, not only a Java runtime."""
    try:
        return find_java().path.resolve().with_name("javac").is_file()
    except EmbeddedKafkaError:
        return False


#: The beginning of the reason of a skip for lack of the C extension.
ABSENT = "There is no C extension"


def has_speedups() -> bool:
    """Whether the C extension can be built and is not disabled."""
    headers = Path(sysconfig.get_path("include"), "Python.h")
    enabled = os.environ.get("MILLSTREAM_EXTENSION") != "omit"
    return enabled and headers.is_file() and any(map(shutil.which, ("cc", "gcc", "clang")))


def has_browser() -> bool:
    """Whether Debian's Chromium and its driver are installed."""
    return shutil.which("chromium") is not None and shutil.which("chromedriver") is not None


def promtool() -> str | None:
    """Prometheus' `promtool`, on the PATH or where `.ci/setup` installs it."""
    return shutil.which("promtool") or shutil.which(Path(sys.executable).with_name("promtool"))


def has_sanitizers() -> bool:
    """Whether gcc has AddressSanitizer and UndefinedBehaviorSanitizer."""
    try:
        return bool(sanitizer_runtimes())
    except VariantError:
        return False


#: Prerequisites that a machine may lack: a part of the reason of a skip, and whether it is missing
#: here.
LACKING: Mapping[str, Callable[[], bool]] = {
    "There is no javac": lambda: not has_compiler(),
    "Decaton's jars are missing": lambda: not os.environ.get("MILLSTREAM_DECATON_JARS"),
    "There is no Chromium with its driver": lambda: not has_browser(),
    "Hosts cannot be created": lambda: unavailable_reason() is not None,
    "There can be no user namespaces": lambda: sys.platform != "linux" or os.geteuid() != 0,
    ABSENT: lambda: not has_speedups(),
    "There are no sanitizers": lambda: not has_sanitizers(),
    "there is no promtool": lambda: promtool() is None,
    "openssl is not installed": lambda: shutil.which("openssl") is None,
}


def is_strict(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether skips are failures."""
    values = (environment.get(name, "") for name in ("CI", "MILLSTREAM_STRICT"))
    return any(value.lower() not in ("", "0", "false") for value in values)


def is_allowed(reason: str) -> bool:
    """Whether a skip is due to a prerequisite that this machine lacks."""
    return any(text in reason and is_missing() for text, is_missing in LACKING.items())


def forbid_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip that is not allowed into a failure. An expected failure is not a skip."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not is_allowed(reason):
        report.outcome = "failed"
        report.longrepr = (
            f"{report.nodeid} may not be skipped here ({reason}). CI or MILLSTREAM_STRICT is set, "
            "and what a machine may lack is listed in tests/support/strictness.py."
        )


def needed_speedups() -> Speedups:
    """The C extension; skips the test if there is none."""
    found = chosen_speedups(None)
    if found is None:
        pytest.skip(f"{ABSENT}: records go {describe_speedups(None)}")
    return found
