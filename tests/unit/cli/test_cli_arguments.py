"""The command line's words: what they mean, and what is said about wrong ones."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from millstream.cli import doctor, main
from millstream.cli.broker import _port, _property, _topic
from millstream.cli.main import COMMANDS


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints the installed version and ends with success."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"millstream {version('millstream')}\n"


def test_the_overview_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """--help shows each subcommand with its line."""
    with pytest.raises(SystemExit):
        main(["--help"])
    overview = " ".join(capsys.readouterr().out.split())
    for command in COMMANDS:
        assert f"{command.NAME} {command.HELP}" in overview


def test_good_words() -> None:
    """Topics with and without partitions; settings whose value contains the separator."""
    assert _topic("clicks:4") == ("clicks", 4)
    assert _topic("clicks") == ("clicks", 1)
    assert _property("a.b=c=d") == ("a.b", "c=d")
    assert _port("0") == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topic", "clicks:"], "'clicks:' is not a topic"),
        (["--topic", "clicks:0"], "'clicks:0' is not a topic"),
        (["--topic", ":3"], "':3' is not a topic"),
        (["--property", "log.retention.ms"], "'log.retention.ms' is not a setting"),
        (["--port", "70000"], "'70000' is not a port"),
    ],
)
def test_wrong_words(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The wrong word is quoted, with what would be right."""
    with pytest.raises(SystemExit) as ended:
        main(["broker", *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_an_error_is_one_message_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    """What goes wrong in a command is printed without a traceback."""
    # Any free port: a developer's machine may have a broker at the usual one.
    assert main(["broker", "--port", "0", "--property", "node.id=7"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("millstream: EmbeddedKafka sets node.id itself")
    assert "Traceback" not in error


def test_doctor_finds_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without Java and with a package missing: both are named, and the exit code is 1."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(doctor, "_PACKAGES", ("orjson", "no-such-package"))
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("ok      Python 3.")
    assert lines[1].startswith("MISSING No Java was found")
    assert lines[2].startswith("ok      orjson ")
    assert lines[3].startswith("MISSING no-such-package is not installed")


def test_doctor_tells_of_a_java_home_that_spark_cannot_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Spark starts the Java of JAVA_HOME, however good the one on the PATH is."""
    for place, version_text in (("bin", "21.0.1"), ("old/bin", "1.8.0_402")):
        program = tmp_path / place / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version_text}\"' >&2\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(doctor, "_PACKAGES", ())
    for home in ("nowhere", "old"):
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / home))
        assert main(["doctor"]) == 1
        said = capsys.readouterr().out.splitlines()[1]
        assert said.startswith(f"MISSING JAVA_HOME is {tmp_path / home}, where there is no Java 17")
        assert f"Java 21.0.1 at {tmp_path / 'bin' / 'java'}" in said
    for home in ("", str(tmp_path)):
        monkeypatch.setenv("JAVA_HOME", home)
        main(["doctor"])
        assert capsys.readouterr().out.splitlines()[1].startswith("ok      Java 21.0.1")


def test_help_of_describe_names_all_that_it_looks_for(capsys: pytest.CaptureFixture[str]) -> None:
    """What it does by itself must not have to be found in the source."""
    with pytest.raises(SystemExit):
        main(["describe", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "by default what is called topology, build or build_topology, or the only one" in told


def test_the_package_can_be_run() -> None:
    """`python -m millstream` is the command line, too."""
    ended = subprocess.run(
        [sys.executable, "-m", "millstream", "--version"], capture_output=True, text=True
    )
    assert ended.returncode == 0
    assert ended.stdout.startswith("millstream ")
