"""The wheel and the sdist have exactly the expected contents."""

from __future__ import annotations

import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

from support.machine.wheels import ROOT, Built, build

PACKAGE = ROOT / "src" / "millstream"


def names_in(wheel: Path) -> set[str]:
    """The files in a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        return set(opened.namelist())


def metadata(wheel: Path) -> dict[str, list[str]]:
    """The metadata fields of a wheel, each with all of its values."""
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [each for each in opened.namelist() if each.endswith(".dist-info/METADATA")]
        parsed = Parser().parsestr(opened.read(name).decode())
    return {field: [str(value) for value in parsed.get_all(field, [])] for field in parsed}


def test_the_wheel_contains_the_package(built: Built) -> None:
    """A missing data file would only be noticed in an installed package."""
    sources = {
        f"millstream/{path.relative_to(PACKAGE)}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packaged = {name for name in names_in(built.wheel) if ".dist-info/" not in name}
    assert packaged == sources
    assert "millstream/py.typed" in packaged


def test_the_metadata_of_the_wheel_is_complete(built: Built) -> None:
    """The metadata for package indexes and installers."""
    fields = metadata(built.wheel)
    assert fields["Name"] == ["millstream"]
    assert fields["License-Expression"] == ["Apache-2.0"]
    assert fields["License-File"] == ["LICENSE"]
    assert fields["Requires-Python"] == [">=3.11"]
    assert "Typing :: Typed" in fields["Classifier"]
    # No upper bounds, except the one that CONTRIBUTING.md explains.
    bounded = [each for each in fields["Requires-Dist"] if "<" in each.partition(";")[0]]
    assert [each.partition(">")[0].partition("<")[0] for each in bounded] == ["kafka-python"]
    with zipfile.ZipFile(built.wheel) as opened:
        (points,) = [name for name in opened.namelist() if name.endswith("entry_points.txt")]
        text = opened.read(points).decode()
    assert "millstream = millstream.cli:main" in text
    assert "millstream.testing.pytest_plugin" in text


def test_the_sdist_builds_the_same_wheel(built: Built, tmp_path: Path) -> None:
    """A wheel that is built from the sdist has the same files."""
    with tarfile.open(built.sdist) as packed:
        packed.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    build(source, tmp_path / "dist", "wheel")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert wheel.name == built.wheel.name
    assert names_in(wheel) == names_in(built.wheel)


def test_local_files_are_not_released(built: Built) -> None:
    """The sdist has no compiled, cached or hidden files of the build machine."""
    with tarfile.open(built.sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    excluded = {
        ".venv",
        "__pycache__",
        ".mypy_cache",
        ".pytest_cache",
        ".hypothesis",
        "build",
        "dist",
    }
    assert not [name for name in names if excluded & set(name.split("/")[:-1])]
    assert not [name for name in names if name.endswith((".pyc", ".so", ".log"))]
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"} <= names
