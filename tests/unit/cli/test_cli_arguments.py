"""The command line's arguments: their meaning, and messages about invalid ones."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from millstream.cli import main
from millstream.cli.commands import doctor
from millstream.cli.main import COMMANDS, millstream
from millstream.embedded import java


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints the installed version and exits successfully."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"millstream {version('millstream')}\n"


def test_the_overview_lists_every_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--help shows each subcommand once, under a heading, with the complete first line of its
    help."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    listed = [each for commands in COMMANDS.values() for each in commands]
    assert sorted(each.name or "" for each in listed) == sorted(millstream.commands)
    for heading in COMMANDS:
        assert f"\n{heading}:\n" in overview
    for each in listed:
        first = (each.help or "").partition("\n")[0]
        assert f"  {each.name} " in overview
        assert first.rstrip(".") in overview, "it does not fit into a line of 80 characters"


@pytest.mark.parametrize("name", sorted(millstream.commands))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It describes the command and each option."""
    assert main([name, "--help"]) == 0
    help_text = capsys.readouterr().out
    assert help_text.startswith(f"Usage: millstream {name} ")
    for parameter in millstream.commands[name].params:
        if parameter.param_type_name == "option":
            assert getattr(parameter, "help", None), f"{name} {parameter.name}"


def test_a_misspelt_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The most similar command is suggested; stdout stays empty."""
    assert main(["descibe"]) == 2
    captured = capsys.readouterr()
    assert "There is no command 'descibe'. Did you mean 'describe'?" in captured.err
    assert captured.out == ""


def test_valid_arguments() -> None:
    """Topics with and without partitions; settings whose value contains the separator."""
    context = millstream.commands["broker"].make_context(
        "broker",
        ["--topic", "clicks:4", "--topic", "views", "--property", "a.b=c=d", "--port", "0"],
    )
    assert context.params["topics"] == (("clicks", 4), ("views", 1))
    assert context.params["properties"] == (("a.b", "c=d"),)
    assert context.params["port"] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--topic", "clicks:"], "'clicks:' is not a topic"),
        (["--topic", "clicks:0"], "'clicks:0' is not a topic"),
        (["--topic", ":3"], "':3' is not a topic"),
        (["--property", "log.retention.ms"], "'log.retention.ms' is not a setting"),
        (["--port", "70000"], "70000 is not in the range"),
    ],
)
def test_invalid_arguments(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message quotes the invalid argument and explains the valid form."""
    assert main(["broker", *words]) == 2
    assert message in capsys.readouterr().err


def test_an_error_is_one_message_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    """Errors of commands are printed without a traceback."""
    # Any free port: a developer's machine may have a broker on the default port.
    assert main(["broker", "--port", "0", "--property", "node.id=7"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("millstream: EmbeddedKafka sets node.id itself")
    assert "Traceback" not in error


def test_doctor_finds_missing_prerequisites(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without Java and with a missing package: both are named, and the exit code is 1."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "bundled_java", lambda: None)
    monkeypatch.setattr(doctor, "_PACKAGES", ("orjson", "no-such-package"))
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7
    assert lines[0].startswith("ok      Python 3.")
    assert lines[1].startswith("MISSING No Java was found")
    assert lines[2].startswith("ok      orjson ")
    assert lines[3].startswith("MISSING no-such-package is not installed")


def test_doctor_reports_an_unsuitable_java_home(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Spark starts the Java of JAVA_HOME, even if the one on the PATH is suitable."""
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
        line = capsys.readouterr().out.splitlines()[1]
        assert line.startswith(f"MISSING JAVA_HOME is {tmp_path / home}, which has no Java 17")
        assert f"Java 21.0.1 exists at {tmp_path / 'bin' / 'java'}" in line
    for home in ("", str(tmp_path)):
        monkeypatch.setenv("JAVA_HOME", home)
        main(["doctor"])
        assert capsys.readouterr().out.splitlines()[1].startswith("ok      Java 21.0.1")


def test_help_of_describe_names_the_default_objects(capsys: pytest.CaptureFixture[str]) -> None:
    """Its default behavior must be documented outside of the source."""
    assert main(["describe", "--help"]) == 0
    help_text = " ".join(capsys.readouterr().out.split())
    assert (
        "By default, it is the object called topology, build or build_topology, or else the only"
        in help_text
    )


def test_the_package_is_executable() -> None:
    """`python -m millstream` is the command line, too."""
    ended = subprocess.run(
        [sys.executable, "-m", "millstream", "--version"], capture_output=True, text=True
    )
    assert ended.returncode == 0
    assert ended.stdout.startswith("millstream ")
