"""Which Java PySpark is given, and what is said where there is none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from millstream.embedded import java
from millstream.embedded.java import bundled_java
from millstream.errors import SparkError
from millstream.spark.sessions.installed import require_pyspark
from millstream.spark.sessions.java_of_spark import see_to_java


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which none is installed, with a cache of its own."""
    # So that whatever is set meanwhile is taken back as well.
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("no_java")
def test_the_java_of_the_extra_runs_though_a_module_is_missing() -> None:
    """Java ends at once where it is asked for a module that it does not have, as Spark does."""
    asked = ["--add-modules=jdk.incubator.vector", "-Dname=a b", "-version"]
    refused = subprocess.run([str(bundled_java()), *asked], capture_output=True, text=True)
    assert "jdk.incubator.vector not found" in refused.stdout + refused.stderr
    see_to_java()
    starter = Path(os.environ["JAVA_HOME"], "bin", "java")
    ran = subprocess.run([str(starter), *asked], capture_output=True, text=True, env={})
    assert ran.returncode == 0, ran.stderr
    assert "openjdk version" in ran.stderr


@pytest.mark.usefixtures("no_java")
def test_another_java_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever has chosen one does not want another."""
    other = tmp_path / "java"
    other.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    other.chmod(0o755)
    see_to_java()
    assert "JAVA_HOME" not in os.environ
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(SparkError, match=r"JAVA_HOME is .*home, where there is no Java 17"):
        see_to_java()


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize("home", ["", "/nowhere"])
def test_a_home_that_leads_nowhere(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty JAVA_HOME is none, as for Spark's own scripts; a wrong one is in nobody's way."""
    monkeypatch.setenv("JAVA_HOME", home)
    see_to_java()
    assert Path(os.environ["JAVA_HOME"], "bin", "java").is_file()


@pytest.mark.usefixtures("no_java")
def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """What to do is said, with the way that needs no rights on the machine."""
    monkeypatch.setattr(java, "bundled_java", lambda: None)
    with pytest.raises(SparkError, match=r"No Java was found.*millstream\[java\]"):
        see_to_java()


@pytest.mark.usefixtures("no_java")
def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a container with a file system that is only read."""
    file = tmp_path / "a-file"
    file.touch()
    monkeypatch.setenv("MILLSTREAM_CACHE", str(file))
    with pytest.raises(SparkError, match="set MILLSTREAM_CACHE to a folder that can"):
        see_to_java()


def test_no_spark_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake that everybody makes first: the extra is not installed."""
    monkeypatch.setattr("millstream.spark.sessions.installed.has_pyspark", lambda: False)
    with pytest.raises(SparkError, match=r"pip install 'millstream\[spark\]'"):
        require_pyspark()
