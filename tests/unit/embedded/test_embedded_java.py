"""The choice of Java, and the errors if there is no suitable one."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.embedded import java as java_module
from millstream.embedded.java import Java, bundled_java, find_java
from millstream.errors import EmbeddedKafkaError


def install_java(folder: Path, version_line: str, *, exit_code: int = 0) -> Path:
    """Install a program that responds to `-version` with this line on standard error, as Java
    does."""
    folder.mkdir(parents=True)
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho '{version_line}' >&2\nexit {exit_code}\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the Java of the extra, which is installed in test environments."""
    monkeypatch.setattr(java_module, "bundled_java", lambda: None)


@pytest.mark.parametrize(
    ("version", "feature"),
    [("17.0.15", 17), ("1.8.0_292", 8), ("21", 21), ("25-ea", 25), ("11.0.2", 11)],
)
def test_feature_number(version: str, feature: int) -> None:
    """Both version schemes of Java, and versions without a dot."""
    assert Java(Path("java"), version).feature == feature


def test_java_home_comes_first(tmp_path: Path) -> None:
    """Before another Java on PATH."""
    expected = install_java(tmp_path / "home" / "bin", 'openjdk version "21.0.1" 2023-10-17')
    install_java(tmp_path / "path", 'openjdk version "17.0.1" 2021-10-19')
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")})
    assert found == Java(expected, "21.0.1")


def test_an_old_java_home_does_not_hide_a_new_java(tmp_path: Path) -> None:
    """A stale JAVA_HOME is skipped if PATH has a suitable Java."""
    install_java(tmp_path / "home" / "bin", 'java version "1.8.0_292"')
    expected = install_java(tmp_path / "path", 'openjdk version "17.0.1" 2021-10-19')
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")})
    assert found.path == expected


@pytest.mark.usefixtures("no_extra")
def test_java_is_too_old(tmp_path: Path) -> None:
    """The error contains the version found and the one to install."""
    install_java(tmp_path / "path", 'java version "1.8.0_292"')
    with pytest.raises(EmbeddedKafkaError, match=r"Java 1\.8\.0_292 at .* too old.*Java 17"):
        find_java({"PATH": str(tmp_path / "path")})


@pytest.mark.usefixtures("no_extra")
@pytest.mark.parametrize("answer", ["nothing", "placeholder"])
def test_java_is_missing(tmp_path: Path, answer: str) -> None:
    """A missing program and a failing placeholder both mean that Java must be installed."""
    if answer == "placeholder":
        install_java(tmp_path / "path", "Unable to locate a Java Runtime.", exit_code=1)
    with pytest.raises(EmbeddedKafkaError, match=r"No Java was found.*install Java 17"):
        find_java({"PATH": str(tmp_path / "path"), "JAVA_HOME": str(tmp_path / "gone")})


def test_the_bundled_java_comes_last(tmp_path: Path) -> None:
    """The extra `java` is for machines without a Java, or with an old one."""
    found = find_java({"PATH": "/nowhere"})
    assert found.path == bundled_java()
    assert found.feature >= 21
    old = install_java(tmp_path / "old", 'openjdk version "11.0.2" 2019-01-15')
    assert find_java({"PATH": str(old.parent)}).path == bundled_java()
    expected = install_java(tmp_path / "path", 'openjdk version "17.0.1" 2021-10-19')
    assert find_java({"PATH": str(expected.parent)}).path == expected
