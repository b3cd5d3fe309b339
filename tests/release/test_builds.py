"""The sdist can be built on machines with and without a compiler, and the installed wheels work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from support.machine.clean_environment import LEADING
from support.machine.wheels import Built
from support.strictness import needed_speedups

from millstream.native import EXTENSION_VERSION

#: They build the extension, or install it.
pytestmark = pytest.mark.extended


def pip(*words: str | Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run pip without an index, in a folder outside of the checkout."""
    unset = {*LEADING, "MILLSTREAM_EXTENSION", "CC", "PIP_FIND_LINKS"}
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        [sys.executable, "-m", "pip", *map(str, words)],
        cwd=folder,
        env={**kept, "PIP_NO_INDEX": "1", "PIP_NO_CACHE_DIR": "1", **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )


def build(built: Built, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Build a wheel from the sdist, with the setuptools of this environment."""
    options = ("--verbose", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    return pip("wheel", *options, built.sdist, folder=folder, **variables)


def test_without_a_compiler_the_extension_is_omitted(built: Built, tmp_path: Path) -> None:
    """The build succeeds, and its output explains the missing extension."""
    programs = tmp_path / "bin"
    programs.mkdir()
    ran = build(built, tmp_path, PATH=str(programs))
    output = ran.stdout + ran.stderr
    assert ran.returncode == 0, output
    assert [path.name for path in tmp_path.glob("*.whl")] == [built.pure.name]
    assert "Building Millstream without its C extension: there is no C compiler" in output
    assert "on Debian, install gcc" in output


def test_a_compiler_that_fails_is_no_obstacle(built: Built, tmp_path: Path) -> None:
    """Such as one without the C library's headers."""
    needed_speedups()
    ran = build(built, tmp_path, CC="false")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (wheel,) = tmp_path.glob("*.whl")
    home = tmp_path / "installed"
    assert pip("install", "--no-deps", "--target", home, wheel, folder=tmp_path).returncode == 0
    assert not list(home.rglob("*.so"))


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"PATH": "/nonexistent"}, "there is no C compiler"),
        ({"CC": "none-such -m64"}, "there is no C compiler (none-such -m64)"),
    ],
    ids=["path", "cc"],
)
def test_a_required_extension_is_never_omitted(
    variables: dict[str, str], reason: str, built: Built, tmp_path: Path
) -> None:
    ran = build(built, tmp_path, MILLSTREAM_EXTENSION="require", **variables)
    assert ran.returncode != 0
    expected = f"The C extension of Millstream cannot be built: {reason}"
    assert expected in ran.stdout + ran.stderr
    assert not list(tmp_path.glob("*.whl"))


def test_a_compiler_that_fails_is_an_error_if_the_extension_is_required(
    built: Built, tmp_path: Path
) -> None:
    needed_speedups()
    ran = build(built, tmp_path, MILLSTREAM_EXTENSION="require", CC="false")
    assert ran.returncode != 0
    assert re.search(r"Command '\['\S*false', .*returned non-zero", ran.stdout + ran.stderr)


def test_an_unknown_mode_is_rejected(built: Built, tmp_path: Path) -> None:
    ran = build(built, tmp_path, MILLSTREAM_EXTENSION="yes")
    assert ran.returncode != 0
    expected = "MILLSTREAM_EXTENSION=yes: expected require, omit or nothing."
    assert expected in ran.stdout + ran.stderr


def test_free_threaded_builds_are_not_supported(built: Built, tmp_path: Path) -> None:
    """The build on a free-threaded Python says why it omits the extension."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sysconfig\nsysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1\n"
    )
    ran = build(built, tmp_path, PYTHONPATH=str(tmp_path))
    output = ran.stdout + ran.stderr
    assert ran.returncode == 0, output
    assert "it does not support free-threaded builds of Python" in output
    assert [path.name for path in tmp_path.glob("*.whl")] == [built.pure.name]


def doctor(wheel: Path, folder: Path) -> str:
    """Install a wheel in an empty environment, and return the output of `millstream doctor`.

    The dependencies are those of the environment of the tests.
    """
    home = folder / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    ran = pip("--python", python, "install", "--no-deps", wheel, folder=folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (site,) = home.glob("lib/python*/site-packages")
    # The .pth files of that folder, one of which refers to the checkout, are ignored.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = {name: value for name, value in os.environ.items() if name not in LEADING}
    checked = subprocess.run(
        [home / "bin" / "millstream", "doctor"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    shutil.rmtree(home)
    return checked.stdout + checked.stderr


def test_the_platform_wheel_is_fast(built: Built, tmp_path: Path) -> None:
    needed_speedups()
    expected = f"C extension {EXTENSION_VERSION}: records are read and written in C"
    assert expected in doctor(built.wheel, tmp_path)


def test_the_pure_wheel_explains_how_to_get_the_extension(built: Built, tmp_path: Path) -> None:
    output = " ".join(doctor(built.pure, tmp_path).split())
    assert "Python code replaces the C extension" in output
    assert "the C extension is not part of this installation" in output
    assert "--no-cache-dir --no-binary millstream millstream" in output
