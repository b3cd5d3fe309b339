"""The environment of a benchmark: machine, versions, commit.

It is saved with every result.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from millstream.native import loaded_version

HERE = Path(__file__).parents[1]
_LIBRARIES = ("confluent-kafka", "pyspark", "rocksdict", "orjson", "msgspec")


def described() -> dict[str, Any]:
    """Return the environment in its saved form."""
    return {
        "machine": {
            "cpu": _cpu(),
            "processors": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "architecture": platform.machine(),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in _LIBRARIES},
            "C extension": loaded_version(),
            "java": _java(),
            "kafka-streams": _kafka_streams(),
        },
        "commit": _commit(),
    }


def _cpu() -> str:
    try:
        names = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        names = []
    return names[0] if names else platform.processor() or "unknown"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _java() -> str | None:
    java = shutil.which("java")
    if java is None:
        return None
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "([^"]+)"', output)
    return found[1] if found else None


def _kafka_streams() -> str | None:
    """Return the Kafka Streams version that the peer is built with."""
    pom = (HERE / "peers" / "kafka-streams" / "pom.xml").read_text()
    found = re.search(r"<artifactId>kafka-streams</artifactId>\s*<version>([^<]+)<", pom)
    return found[1] if found else None


def _commit() -> str | None:
    """Return the measured commit, with a plus sign if files differ from it."""
    git = ["git", "-C", str(HERE)]
    head = subprocess.run(
        [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False
    )
    if head.returncode:
        return None
    changes = subprocess.run(
        [*git, "status", "--porcelain", "--untracked-files=no"],
        capture_output=True,
        text=True,
        check=False,
    )
    return head.stdout.strip() + ("+" if changes.stdout.strip() else "")
