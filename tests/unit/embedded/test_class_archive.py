"""The class archive (CDS) that a broker leaves for the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.embedded.broker_home import ClassArchive


@pytest.fixture
def java(tmp_path: Path) -> Path:
    program = tmp_path / "java"
    program.write_text("")
    return program


def test_the_first_broker_writes_the_archive_and_the_next_uses_it(
    tmp_path: Path, java: Path
) -> None:
    cache, home = tmp_path / "cache", tmp_path / "home"
    cache.mkdir()
    home.mkdir()
    jars = [cache / "kafka.jar"]
    first = ClassArchive(cache, java, jars)
    assert first.options()[0] == "-XX:ArchiveClassesAtExit=classes.jsa"

    first.keep(home)
    assert list(cache.iterdir()) == [], "the JVM has written no archive"

    (home / "classes.jsa").write_bytes(b"classes")
    first.keep(home)
    (kept,) = cache.iterdir()
    assert kept.read_bytes() == b"classes"
    assert ClassArchive(cache, java, jars).options()[0] == f"-XX:SharedArchiveFile={kept}"


def test_the_archive_depends_on_the_java_and_the_jars(tmp_path: Path, java: Path) -> None:
    (tmp_path / "classes.jsa").write_bytes(b"classes")
    ClassArchive(tmp_path, java, [Path("a.jar")]).keep(tmp_path)
    other = tmp_path / "java-21"
    other.write_text("")
    for archive in (
        ClassArchive(tmp_path, java, [Path("b.jar")]),
        ClassArchive(tmp_path, other, [Path("a.jar")]),
    ):
        assert archive.options()[0] == "-XX:ArchiveClassesAtExit=classes.jsa"


def test_an_unwritable_cache_is_ignored(tmp_path: Path, java: Path) -> None:
    (tmp_path / "classes.jsa").write_bytes(b"classes")
    ClassArchive(tmp_path / "is not there", java, []).keep(tmp_path)
    assert not (tmp_path / "is not there").exists()
