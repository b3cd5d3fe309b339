"""Home, name and temporary folder of users without a system entry, as in containers."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

import pytest

from millstream.embedded import system_user
from millstream.embedded.jars import cache_parent
from millstream.errors import SparkError


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user id without an entry, and without the environment variables of a login."""

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for variable in ("HOME", "HADOOP_USER_NAME"):
        monkeypatch.delenv(variable, raising=False)


def _with_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = pwd.struct_passwd(("ada", "x", os.getuid(), os.getgid(), "", str(folder), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    monkeypatch.delenv("HOME", raising=False)


def test_the_entry_is_used_if_its_home_is_writable(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_home(tmp_path, monkeypatch)
    assert (system_user.has_entry(), system_user.name()) == (True, "ada")
    assert system_user.home_folder() == tmp_path
    assert list(temporary.iterdir()) == []


@pytest.mark.usefixtures("no_entry")
def test_a_user_without_an_entry_has_a_private_home_and_a_name(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (system_user.has_entry(), system_user.name()) == (False, f"user-{os.getuid()}")
    home = system_user.home_folder()
    assert home == temporary / f"millstream-home-{os.getuid()}"
    assert home.stat().st_mode & 0o777 == 0o700
    assert system_user.home_folder() == home, "the folder is the same in all processes"
    assert cache_parent({}) == home / ".cache" / "millstream"
    monkeypatch.setenv("HADOOP_USER_NAME", "ada")
    assert system_user.name() == "ada"


@pytest.mark.usefixtures("no_entry", "temporary")
def test_home_is_used_without_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images for OpenShift set HOME to a folder that is writable for their group."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert system_user.home_folder() == tmp_path


def test_a_missing_home_is_replaced(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_home(tmp_path / "nowhere", monkeypatch)
    assert system_user.home_folder().parent == temporary


def test_a_read_only_home_is_replaced(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_home(tmp_path, monkeypatch)
    # Root can write to all folders, and a read-only file system would need a mount.
    monkeypatch.setattr(os, "access", lambda folder, _: Path(folder) != tmp_path)
    assert system_user.home_folder().parent == temporary


@pytest.mark.usefixtures("no_entry")
@pytest.mark.parametrize("planted", ["writable", "link"])
def test_a_home_writable_for_others_is_rejected(
    planted: str, temporary: Path, tmp_path: Path
) -> None:
    """Another user could place code where Java's package managers look for it."""
    folder = temporary / f"millstream-home-{os.getuid()}"
    if planted == "link":
        folder.symlink_to(tmp_path)
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.raises(SparkError, match=r"no writable home.*Set HOME to a writable folder"):
        system_user.home_folder()


def test_no_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error lists the tried folders and the variable to set."""

    def none_usable() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(tempfile, "gettempdir", none_usable)
    monkeypatch.setenv("TMPDIR", "/nowhere")
    expected = rf"user id {os.getuid()} cannot write.*TMPDIR \(/nowhere\).*Set TMPDIR to a writable"
    with pytest.raises(SparkError, match=expected):
        system_user.temporary_folder()
