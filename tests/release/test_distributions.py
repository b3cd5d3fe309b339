"""The wheels and the sdist have exactly the expected contents."""

from __future__ import annotations

import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename
from support.machine.wheels import ROOT, Built
from support.strictness import needed_speedups

#: They build the extension.
pytestmark = pytest.mark.extended

PACKAGE = ROOT / "src" / "millstream"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
EXTENSION = "millstream/native/_native.abi3.so"


@pytest.fixture(params=["wheel", "pure"])
def wheel(request: pytest.FixtureRequest, built: Built) -> Path:
    """The wheel with the extension, and the one without."""
    path: Path = getattr(built, request.param)
    return path


def names_in(wheel: Path) -> set[str]:
    """The files in a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        return {name for name in opened.namelist() if not name.endswith("/")}


def packaged(wheel: Path) -> set[str]:
    """The files in a wheel, without its metadata."""
    return {name for name in names_in(wheel) if ".dist-info/" not in name}


def metadata(wheel: Path) -> dict[str, list[str]]:
    """The metadata fields of a wheel, each with all of its values."""
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [each for each in opened.namelist() if each.endswith(".dist-info/METADATA")]
        parsed = Parser().parsestr(opened.read(name).decode())
    return {field: [str(value) for value in parsed.get_all(field, [])] for field in parsed}


def in_sdist(sdist: Path) -> set[str]:
    """The files in the sdist, relative to its folder."""
    with tarfile.open(sdist) as packed:
        return {each.name.partition("/")[2] for each in packed.getmembers() if each.isfile()}


def sources(folder: Path) -> set[str]:
    """The files in a folder of the checkout, without compiled files."""
    return {
        str(path.relative_to(folder.parent))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }


def test_the_wheels_contain_the_package(built: Built) -> None:
    """A missing data file would only be noticed in an installed package. The wheels are built from
    the sdist, so this also checks the sdist."""
    needed_speedups()
    assert packaged(built.pure) == sources(PACKAGE)
    assert packaged(built.wheel) == sources(PACKAGE) | {EXTENSION}
    assert "millstream/py.typed" in packaged(built.pure)


def test_the_metadata_of_the_wheels_is_complete(wheel: Path) -> None:
    """The metadata for package indexes and installers."""
    fields = metadata(wheel)
    assert fields["Name"] == ["millstream"]
    assert fields["Version"] == [VERSION]
    assert fields["License-Expression"] == ["Apache-2.0"]
    assert fields["License-File"] == ["LICENSE"]
    assert fields["Requires-Python"] == [">=3.11"]
    assert "Typing :: Typed" in fields["Classifier"]
    # No upper bounds, except the one that CONTRIBUTING.md explains.
    bounded = [each for each in fields["Requires-Dist"] if "<" in each.partition(";")[0]]
    assert [each.partition(">")[0].partition("<")[0] for each in bounded] == ["kafka-python"]
    with zipfile.ZipFile(wheel) as opened:
        (points,) = [name for name in opened.namelist() if name.endswith("entry_points.txt")]
        text = opened.read(points).decode()
    assert "millstream = millstream.cli:main" in text
    assert "millstream.testing.pytest_plugin" in text


def test_the_wheels_contain_the_license(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        text = opened.read(f"millstream-{VERSION}.dist-info/licenses/LICENSE").decode()
    assert text == (ROOT / "LICENSE").read_text()


def tags_of(wheel: Path) -> frozenset[Tag]:
    return parse_wheel_filename(wheel.name)[3]


def supported(minor: int, abi: str, platform: str) -> set[Tag]:
    """The tags that installers accept for a CPython 3.`minor`."""
    version = (3, minor)
    return {
        *cpython_tags(version, [abi], [platform]),
        *compatible_tags(version, f"cp3{minor}", [platform]),
    }


@pytest.mark.parametrize("minor", range(11, 16))
def test_one_wheel_fits_all_versions_of_python(minor: int, built: Built) -> None:
    needed_speedups()
    (tag,) = tags_of(built.wheel)
    assert (tag.interpreter, tag.abi) == ("cp311", "abi3")
    assert tag in supported(minor, f"cp3{minor}", tag.platform)


@pytest.mark.parametrize(
    ("minor", "abi", "platform"),
    [
        (14, "cp314t", "linux_x86_64"),
        (13, "cp313t", "macosx_14_0_arm64"),
        (12, "cp312", "win_amd64"),
        (12, "cp312", "linux_riscv64"),
    ],
    ids=["free-threaded", "free-threaded-mac", "windows", "another-processor"],
)
def test_other_platforms_get_the_wheel_without_the_extension(
    minor: int, abi: str, platform: str, built: Built
) -> None:
    """The extension does not support free-threaded builds, which accept no abi3 wheels."""
    needed_speedups()
    accepted = supported(minor, abi, platform)
    assert not tags_of(built.wheel) & accepted
    assert tags_of(built.pure) & accepted


def test_the_sdist_contains_only_what_a_build_needs(built: Built) -> None:
    """No tests, documentation or local files: these are in the repository."""
    names = in_sdist(built.sdist)
    generated = {name for name in names if name.startswith("src/millstream.egg-info/")}
    root = {"CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"}
    assert names - generated == {
        *root,
        # Written by setuptools.
        "PKG-INFO",
        "setup.cfg",
        *sources(ROOT / "native"),
        *(f"src/{name}" for name in sources(PACKAGE)),
    }
