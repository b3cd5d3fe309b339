"""`millstream run`: running programs, watching files, and finding settings."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from millstream import KafkaStreams, StreamsConfig
from millstream.cli import main
from millstream.cli.cluster_options import ClusterOptions, settings_from
from millstream.cli.programs.facts_subprocess import facts_in_subprocess
from millstream.cli.programs.load import command_for, is_script
from millstream.cli.programs.supervised_program import changed, snapshot, syntax_error
from millstream.config.references import resolved_properties
from millstream.errors import ConfigError, StreamsError

_PROGRAM = """
from millstream import KafkaStreams, StreamsBuilder, StreamsConfig
from millstream.serdes import STRING

def build():
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return builder.build()

config = StreamsConfig(
    application_id="shop",
    bootstrap_servers="nowhere:1",
    default_key_serde=STRING,
    default_value_serde=STRING,
)
"""


def program(folder: Path, text: str = "", name: str = "app.py") -> str:
    file = folder / name
    file.write_text(_PROGRAM + text)
    return str(file)


def test_a_script_is_run_as_python_runs_it(tmp_path: Path) -> None:
    """A `__main__` guard in either form makes a file a script, which receives the arguments."""
    for guard in ("if __name__ == '__main__':", 'if "__main__" == __name__:'):
        path = program(tmp_path, f"{guard}\n    pass")
        assert command_for(path, ["-n", "4"]) == [sys.executable, path, "-n", "4"]
    path = program(tmp_path, "def f():\n    return __name__ == '__main__'")
    assert not is_script(path)


@pytest.mark.parametrize(
    "text",
    [
        "def later():\n    from .names import TOPIC",
        "try:\n    from .names import TOPIC\nexcept ImportError:\n    TOPIC = 'in'",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .names import TOPIC",
    ],
    ids=["in a function", "caught", "for types"],
)
def test_relative_imports_are_detected_without_execution(tmp_path: Path, text: str) -> None:
    path = program(tmp_path, f"{text}\nif __name__ == '__main__':\n    pass")
    assert command_for(path, []) == [sys.executable, path]
    path = program(tmp_path, "from .names import TOPIC")
    with pytest.raises(StreamsError, match="relative imports, which do not work"):
        command_for(path, [])


def test_a_program_that_only_defines_an_application(tmp_path: Path) -> None:
    """The command loads and runs it; it takes no arguments."""
    path = program(tmp_path)
    expected = [sys.executable, "-m", "millstream", "run", path]
    assert command_for(path, []) == expected
    with pytest.raises(StreamsError, match="takes no arguments"):
        command_for(path, ["--fast"])
    with pytest.raises(StreamsError, match="There is no file"):
        command_for(str(tmp_path / "nothing.py"), [])
    with pytest.raises(StreamsError, match="There is no file and no module no_such"):
        command_for("no_such.module", [])


def test_a_failing_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Finding a module imports its package, whose errors are reported like a program's."""
    monkeypatch.chdir(tmp_path)
    for package, text, message in (
        ("failing_package", "raise ValueError('no')", "could not be loaded: ValueError: no"),
        ("ending_package", "raise SystemExit(3)", "ended the process while it was loaded"),
        ("missing_package", "import no_such_neighbour", "No module named 'no_such_neighbour'"),
    ):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(text)
        program(tmp_path / package)
        before = list(sys.path)
        assert main(["run", f"{package}.app"]) == 1
        assert message in capsys.readouterr().err
        assert sys.path == before


@pytest.mark.parametrize(
    ("text", "name", "application_id"),
    [
        ("", "", "shop"),
        ("streams = KafkaStreams(build(), config)", "", "shop"),
        ("one = KafkaStreams(build(), config.replace(application_id='one'))", ":one", "one"),
        ("def app() -> KafkaStreams: return KafkaStreams(build(), config)", "", "shop"),
    ],
)
def test_finding_the_application(
    text: str, name: str, application_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program's application, or one made of its topology and settings."""
    ran: list[str] = []
    monkeypatch.setattr(KafkaStreams, "run", lambda self: ran.append(repr(self)))
    assert main(["run", program(tmp_path, text) + name]) == 0
    assert len(ran) == 1
    assert f"KafkaStreams {application_id!r}" in ran[0]


def test_nothing_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the default objects."""
    file = tmp_path / "app.py"
    file.write_text("x = 1\n")
    assert main(["run", str(file)]) == 1
    assert "has no application" in capsys.readouterr().err


def test_detecting_changes(tmp_path: Path) -> None:
    """New, removed and changed files of a program; not files that it writes while running."""
    (tmp_path / "app.py").write_text("a = 1\n")
    (tmp_path / "old.py").write_text("")
    before = snapshot(tmp_path)
    for folder in (".git", "__pycache__", "venv"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.py").write_text("")
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    (tmp_path / "log.txt").write_text("")
    (tmp_path / "state").mkdir()
    assert changed(before, snapshot(tmp_path)) == []
    (tmp_path / "app.py").write_text("a = 12\n")
    (tmp_path / "old.py").unlink()
    (tmp_path / "new.toml").write_text("")
    names = [Path(path).name for path in changed(before, snapshot(tmp_path))]
    assert names == ["app.py", "new.toml", "old.py"]


def test_invalid_python_is_detected_before_anything_is_stopped(tmp_path: Path) -> None:
    """A half-saved file must not stop the running program."""
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("a = 1\n")
    bad.write_text("a = 1\ndef f(:\n")
    gone = str(tmp_path / "gone.py")
    assert syntax_error([str(good), gone, str(tmp_path / "x.toml")]) is None
    assert f"{bad}, line 2" in (syntax_error([str(good), str(bad)]) or "")


def test_two_versions_are_loaded_separately(tmp_path: Path) -> None:
    """Each imports its own neighbor module, although both have the same name; output of the
    programs does no harm."""
    for version in ("old", "new"):
        folder = tmp_path / version
        folder.mkdir()
        (folder / "their_names.py").write_text(f"TOPIC = 'orders-{version}'\n")
        program(
            folder,
            "from their_names import TOPIC\nprint('hello')\n"
            "def build():\n    b = StreamsBuilder()\n    b.stream(TOPIC).to('out')\n    return b",
        )
        facts = facts_in_subprocess(str(folder / "app.py"))
        assert facts.subtopologies[0].sources == (f"orders-{version}",)
        assert facts.application_id == "shop"
    with pytest.raises(StreamsError, match="There is no file"):
        facts_in_subprocess(str(tmp_path / "app.py"))
    crashing = program(tmp_path, "import os\nos._exit(7)")
    with pytest.raises(StreamsError, match="exit code 7"):
        facts_in_subprocess(crashing)


def test_a_file_of_properties(tmp_path: Path) -> None:
    """Java's format: comments, both separators, continuation lines, values with separators."""
    file = tmp_path / "client.properties"
    file.write_text(
        "# a comment\n! another\n\nsecurity.protocol = SASL_SSL\nsasl.mechanism:PLAIN\n"
        "sasl.jaas.config=org.apache.x.PlainLoginModule required \\\n"
        '    username="ann" password="a=b";\n'
    )
    assert resolved_properties(file) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'org.apache.x.PlainLoginModule required username="ann" password="a=b";',
    }
    file.write_text("what is this\n")
    with pytest.raises(ConfigError, match="line 1"):
        resolved_properties(file)


def test_precedence_of_settings(tmp_path: Path) -> None:
    """Options take precedence over the file, the file over the program."""
    known = StreamsConfig(
        application_id="shop", bootstrap_servers="program:1", num_stream_threads=3
    )
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nsecurity.protocol=SSL\n")

    def found(given: ClusterOptions, config: StreamsConfig | None = known) -> tuple[str, str, str]:
        settings = settings_from(given, config)
        return settings.application_id, settings.bootstrap_servers, settings.security_protocol

    assert found(ClusterOptions(None, None)) == ("shop", "program:1", "PLAINTEXT")
    assert found(ClusterOptions("option:1", None, "mail")) == ("mail", "option:1", "PLAINTEXT")
    assert found(ClusterOptions(None, str(file))) == ("shop", "file:1", "SSL")
    assert found(ClusterOptions("option:1", str(file), "mail"), None) == ("mail", "option:1", "SSL")
    for given, message in [
        (ClusterOptions(None, None, "shop"), "No cluster is given"),
        (ClusterOptions("x:1", None), "No application is given"),
    ]:
        with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
            settings_from(given, None)


def test_a_file_has_the_connection_and_the_program_everything_else(tmp_path: Path) -> None:
    """Detects a reset that uses another state directory or server than the program, and mixed
    credentials."""
    known = StreamsConfig(
        application_id="shop",
        bootstrap_servers="program:1",
        state_dir=str(tmp_path),
        errors_dead_letter_queue_topic_name="dead",
        security_protocol="SASL_SSL",
        clients={"sasl.mechanism": "PLAIN"},
    )
    file = tmp_path / "client.properties"
    file.write_text("ssl.truststore.type=PEM\nnum.stream.threads=2\n")
    found = settings_from(ClusterOptions(None, str(file)), known)
    assert (found.bootstrap_servers, found.application_id) == ("program:1", "shop")
    assert (found.state_dir, found.num_stream_threads) == (str(tmp_path), 2)
    assert found.errors_dead_letter_queue_topic_name == "dead"
    assert found.security_protocol == "PLAINTEXT"
    assert found.clients == {"ssl.truststore.type": "PEM"}


def test_an_application_named_only_by_the_file(tmp_path: Path) -> None:
    """A default application id does not take precedence over the file."""
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\n")
    assert (
        settings_from(ClusterOptions(None, str(file)), None, "made-up").application_id == "made-up"
    )
    file.write_text("bootstrap.servers=file:1\napplication.id=mail\n")
    assert settings_from(ClusterOptions(None, str(file)), None, "made-up").application_id == "mail"


def test_completion(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts for three shells, and their completions."""
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        assert f"_MILLSTREAM_COMPLETE={shell}_complete" in capsys.readouterr().out
    monkeypatch.setenv("_MILLSTREAM_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "millstream reset --to-d")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out == "plain,--to-datetime\n"


def test_the_reader_of_the_output_may_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As in `millstream describe app.py | head -1`: no traceback, exit code 1."""

    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError

    path = program(tmp_path)
    kept = os.dup(1)
    try:
        monkeypatch.setattr("click.echo", closed)
        assert main(["describe", path]) == 1
    finally:
        os.dup2(kept, 1)
        os.close(kept)
