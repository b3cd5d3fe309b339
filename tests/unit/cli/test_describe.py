"""`millstream describe`: finding a program's topology, printing it, and errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.cli import main
from millstream.cli.programs.topologies import topology_in

_BUILD = """
from millstream import StreamsBuilder, Topology

def made():
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return builder
"""


def program(folder: Path, text: str, name: str = "app.py") -> str:
    """Write a user's file below the folder."""
    file = folder / name
    file.write_text(_BUILD + text)
    return str(file)


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ("topology = made().build()", ""),
        ("build = made", ""),
        ("def topology(): return made().build()", ""),
        ("def topology(name='x'): return made()", ""),
        ("anything = made()", ""),
        # A builder and its topology are one topology.
        ("b = made()\nt = b.build()", ""),
        ("one = made()\nother = made()", ":other"),
        ("def shop(n: int = 1) -> Topology: return made().build()", ""),
        ("def shop() -> 'StreamsBuilder': return made()\ndef part(n) -> Topology: 1 / 0", ""),
        ("topology = 7\nother = made()", ":other"),
        ("if __name__ == '__main__':\n    raise AssertionError\nt = made()", ""),
    ],
)
def test_finding_a_topology(text: str, suffix: str, tmp_path: Path) -> None:
    """By the usual names, as the only one, or by the given name; the main part is not executed."""
    topology = topology_in(program(tmp_path, text) + suffix)
    assert list(topology.nodes) == ["KSTREAM-SOURCE-0000000000", "KSTREAM-SINK-0000000001"]


_LOUD = """
print("loading")
from millstream import StreamsConfig
from millstream.serdes import STRING

def topology():
    print("building")
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).group_by_key().count(store="counts")
    return builder.build()

def config() -> StreamsConfig:
    print("configuring")
    return StreamsConfig(application_id="shop", bootstrap_servers="x:1")
"""


@pytest.mark.parametrize(
    "words", [["describe", "--json"], ["describe", "--facts"], ["topics", "--offline", "--json"]]
)
def test_output_of_a_program_is_not_in_the_document(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stdout is the command's: module-level output of the program goes to stderr."""
    assert main([*words, program(tmp_path, _LOUD)]) == 0
    captured = capsys.readouterr()
    json.loads(captured.out)
    # The text form of a topology needs no settings.
    configuring = [] if words == ["describe", "--json"] else ["configuring"]
    assert captured.err.split() == ["loading", "building", *configuring]


def test_the_three_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kafka Streams' text, a Mermaid flowchart, JSON."""
    path = program(tmp_path, "topology = made().build()")
    description = topology_in(path).describe()
    assert main(["describe", path]) == 0
    assert capsys.readouterr().out == str(description)
    assert main(["describe", "--mermaid", path]) == 0
    assert capsys.readouterr().out == description.to_mermaid()
    assert main(["describe", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == description.to_dict()


def test_a_program_imports_its_neighbours(tmp_path: Path) -> None:
    """As with `python app.py`; the search path is restored afterwards."""
    (tmp_path / "shop_names.py").write_text("TOPIC = 'orders'\n")
    path = program(tmp_path, "import shop_names\nt = made()\nt.stream(shop_names.TOPIC)")
    before = list(sys.path)
    assert "KSTREAM-SOURCE-0000000002" in topology_in(path).nodes
    assert sys.path == before


def test_a_program_does_not_replace_a_module_of_its_name(tmp_path: Path) -> None:
    """A file with the name of a module does not replace the module."""
    topology_in(program(tmp_path, "t = made()", "json.py"))
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("text", "suffix", "message"),
    [
        ("1 / 0", "", "could not be loaded (line 9): ZeroDivisionError: division by zero"),
        ("def f(:", "", "could not be loaded (line 9): SyntaxError"),
        ("import sys\nsys.exit(3)", "", "ended the process while it was loaded (exit code 3)"),
        ("", "", "has no topology"),
        ("a = made()\nb = made()", "", "has several topologies: a, b. Choose one"),
        ("orders = made()", ":order", "There is no 'order' in"),
        ("orders = made()", ":order", "orders"),
        ("topology = 7", "", "topology in"),
        ("topology = 7", "", "is int, not a Topology or a StreamsBuilder"),
        ("def build(): return 'x'", "", "build() in"),
        ("def build(path): return made()", "", "missing a required argument: 'path'"),
        ("def build(): return made().nothing", "", "build() in"),
        ("def build(): return made().nothing", "", "failed (line 9): AttributeError"),
        ("t = made()\nt.stream([])", "", "stream() needs at least one topic"),
    ],
)
def test_errors(
    text: str, suffix: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One message that names the file, and the line of the program's error."""
    path = program(tmp_path, "\n" + text)
    assert main(["describe", path + suffix]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("millstream: ")
    assert "app.py" in error
    assert "Traceback" not in error


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's package in the working directory; its modules are unloaded at the end."""
    folder = tmp_path / "a_shop"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "names.py").write_text("TOPIC = 'orders'\n")
    monkeypatch.chdir(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "a_shop"]:
        del sys.modules[name]


@pytest.mark.parametrize("suffix", ["", ":build_topology", ":made"])
def test_a_program_may_be_a_module(package: Path, suffix: str) -> None:
    """As with `python -m`, with imports relative to its package."""
    program(package, "from .names import TOPIC\ndef build_topology(): return made()")
    before = list(sys.path)
    assert len(topology_in(f"a_shop.app{suffix}").nodes) == 2
    assert sys.path == before


def test_invalid_modules(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing module is distinguished from a missing import of an existing module."""
    program(package, "import no_such_module_of_the_shop")
    (package / "empty.py").write_text("")
    (package.parent / "plain").mkdir()
    for name, message in [
        ("a_shop.nothing", "There is no file and no module a_shop.nothing: No module named"),
        ("no_shop.app:build", "There is no file and no module no_shop.app: No module named"),
        ("a_shop.app", "could not be loaded (line 8): ModuleNotFoundError: No module named 'no_s"),
        ("a_shop.empty", "a_shop.empty has no topology"),
        ("plain", "It is a directory"),
        ("app", "There is no file and no module app"),
    ]:
        assert main(["describe", name]) == 1
        error = capsys.readouterr().err
        assert message in error
        assert "Traceback" not in error


def test_invalid_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path that does not exist, of a directory, or of a file other than Python."""
    (tmp_path / "notes.txt").write_text("")
    for name, message in [
        ("nowhere.py", "There is no file"),
        (".", "It is a directory"),
        ("notes.txt", "must end in .py"),
    ]:
        assert main(["describe", str(tmp_path / name)]) == 1
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["describe", "run"])
@pytest.mark.parametrize(
    ("program", "name"),
    [("fleet", "fleet.__main__"), ("fleet/", "fleet.__main__"), ("fleet/app.py", "fleet.app")],
)
def test_a_package_is_run_by_one_of_its_modules(
    command: str,
    program: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error names the folder and the command, and that command works."""
    package = tmp_path / "fleet"
    package.mkdir()
    package.joinpath("__init__.py").write_text("")
    package.joinpath("parts.py").write_text(
        "from millstream import StreamsBuilder\n"
        "builder = StreamsBuilder()\n"
        "builder.stream('in').to('out')\n"
    )
    for file in ("app.py", "__main__.py"):
        package.joinpath(file).write_text("from .parts import builder\n")
    monkeypatch.chdir(tmp_path)
    assert main([command, program]) == 1
    errors = " ".join(capsys.readouterr().err.split())
    assert f"in the folder {tmp_path}, use {name} instead." in errors.replace("In the", "in the")
    assert main(["describe", name]) == 0
    assert "in" in capsys.readouterr().out


def test_a_package_may_be_a_program_beside_its_main_module(package: Path) -> None:
    """A topology in `__init__.py` is found, even if the package has a `__main__.py`."""
    (package / "parts.py").write_text(
        "from millstream import StreamsBuilder\n"
        "builder = StreamsBuilder()\n"
        "builder.stream('in').to('out')\n"
    )
    (package / "__init__.py").write_text('"""A shop."""\nfrom .parts import builder\n')
    (package / "__main__.py").write_text("print('not this one')\n")
    for name in ("a_shop", "a_shop:builder"):
        assert len(topology_in(name).nodes) == 2
