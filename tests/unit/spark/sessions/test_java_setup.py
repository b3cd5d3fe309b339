"""The Java that PySpark uses, and messages if there is none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from millstream.embedded import java
from millstream.embedded.java import bundled_java
from millstream.errors import SparkError
from millstream.spark.sessions.java_setup import ensure_java
from millstream.spark.sessions.session import require_pyspark


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without an installed Java, with its own cache."""
    # Makes monkeypatch restore the variable at the end.
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("no_java")
def test_the_java_of_the_extra_runs_without_a_missing_module() -> None:
    """Java exits if a requested module is missing, and Spark requests one."""
    arguments = ["--add-modules=jdk.incubator.vector", "-Dname=a b", "-version"]
    refused = subprocess.run([str(bundled_java()), *arguments], capture_output=True, text=True)
    assert "jdk.incubator.vector not found" in refused.stdout + refused.stderr
    ensure_java()
    starter = Path(os.environ["JAVA_HOME"], "bin", "java")
    ran = subprocess.run([str(starter), *arguments], capture_output=True, text=True, env={})
    assert ran.returncode == 0, ran.stderr
    assert "openjdk version" in ran.stderr


@pytest.mark.usefixtures("no_java")
def test_another_java_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A chosen Java is not replaced."""
    other = tmp_path / "java"
    other.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    other.chmod(0o755)
    ensure_java()
    assert "JAVA_HOME" not in os.environ
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(SparkError, match=r"JAVA_HOME is .*home, which has no Java 17"):
        ensure_java()


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize("home", ["", "/nowhere"])
def test_an_invalid_home(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Spark's own scripts, an empty JAVA_HOME counts as unset; a wrong one is ignored."""
    monkeypatch.setenv("JAVA_HOME", home)
    ensure_java()
    assert Path(os.environ["JAVA_HOME"], "bin", "java").is_file()


@pytest.mark.usefixtures("no_java")
def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message explains the remedy that needs no privileges."""
    monkeypatch.setattr(java, "bundled_java", lambda: None)
    with pytest.raises(SparkError, match=r"No Java was found.*millstream\[java\]"):
        ensure_java()


@pytest.mark.usefixtures("no_java")
def test_an_unwritable_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a container with a read-only file system."""
    file = tmp_path / "a-file"
    file.touch()
    monkeypatch.setenv("MILLSTREAM_CACHE", str(file))
    with pytest.raises(SparkError, match="Set MILLSTREAM_CACHE to a writable folder"):
        ensure_java()


def test_no_spark_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The most common first mistake: the extra is not installed."""
    monkeypatch.setattr("millstream.spark.sessions.session.has_pyspark", lambda: False)
    with pytest.raises(SparkError, match=r"pip install 'millstream\[spark\]'"):
        require_pyspark()
