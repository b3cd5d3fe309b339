"""Wheel and sdist have all that they should, and nothing else."""

from __future__ import annotations

import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

from support.machine.wheels import ROOT, Built, build

PACKAGE = ROOT / "src" / "millstream"


def names_in(wheel: Path) -> set[str]:
    """The files of a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        return set(opened.namelist())


def metadata(wheel: Path) -> dict[str, list[str]]:
    """The fields of a wheel's description, each with all of its values."""
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [each for each in opened.namelist() if each.endswith(".dist-info/METADATA")]
        parsed = Parser().parsestr(opened.read(name).decode())
    return {field: [str(value) for value in parsed.get_all(field, [])] for field in parsed}


def test_the_wheel_is_the_package(built: Built) -> None:
    """A file of data that is left out is missed only where the wheel is installed."""
    sources = {
        f"millstream/{path.relative_to(PACKAGE)}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    told = {name for name in names_in(built.wheel) if ".dist-info/" not in name}
    assert told == sources
    assert "millstream/py.typed" in told


def test_the_wheel_says_what_it_is(built: Built) -> None:
    """What an index shows, and what an installer needs."""
    said = metadata(built.wheel)
    assert said["Name"] == ["millstream"]
    assert said["License-Expression"] == ["Apache-2.0"]
    assert said["License-File"] == ["LICENSE"]
    assert said["Requires-Python"] == [">=3.11"]
    assert "Typing :: Typed" in said["Classifier"]
    # No upper bounds, but for the one that CONTRIBUTING.md explains.
    bounded = [each for each in said["Requires-Dist"] if "<" in each.partition(";")[0]]
    assert [each.partition(">")[0].partition("<")[0] for each in bounded] == ["kafka-python"]
    with zipfile.ZipFile(built.wheel) as opened:
        (points,) = [name for name in opened.namelist() if name.endswith("entry_points.txt")]
        text = opened.read(points).decode()
    assert "millstream = millstream.cli:main" in text
    assert "millstream.testing.pytest_plugin" in text


def test_the_sdist_gives_the_same_wheel(built: Built, tmp_path: Path) -> None:
    """Whoever builds from the sdist has what the wheel has."""
    with tarfile.open(built.sdist) as packed:
        packed.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    build(source, tmp_path / "dist", "wheel")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert wheel.name == built.wheel.name
    assert names_in(wheel) == names_in(built.wheel)


def test_nothing_of_this_machine_is_released(built: Built) -> None:
    """No compiled, cached or hidden things of whoever built it."""
    with tarfile.open(built.sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    odd = {".venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".hypothesis", "build", "dist"}
    assert not [name for name in names if odd & set(name.split("/")[:-1])]
    assert not [name for name in names if name.endswith((".pyc", ".so", ".log"))]
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"} <= names
