"""Options of the driver's JVM for users without a passwd entry, a home directory or a writable
/tmp."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark import SparkConf, SparkContext

from millstream.embedded import system_user
from millstream.spark.sessions.java_setup import (
    ensure_user,
    java_options,
    log_in,
    user_hint,
)
from millstream.spark.sessions.local_session import describe_start_failure


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user with an entry and a home, and Java's default folder for temporary files."""
    known = pwd.struct_passwd(("ada", "x", os.getuid(), os.getgid(), "", str(tmp_path), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: known)
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    # Makes monkeypatch restore the variable at the end.
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "")


@pytest.fixture
def no_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, entry: None) -> None:
    """A user id without a passwd entry."""

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.usefixtures("entry")
def test_an_ordinary_user_needs_no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    starting = Mock()
    monkeypatch.setattr(SparkContext, "_ensure_initialized", starting)
    assert java_options() == []
    ensure_user()
    assert os.environ["SPARK_SUBMIT_OPTS"] == ""
    log_in(SparkConf(loadDefaults=False))
    assert (starting.called, user_hint()) == (False, "")


@pytest.mark.usefixtures("no_entry")
def test_a_user_without_an_entry_gets_a_home_and_a_name(tmp_path: Path) -> None:
    """Detects Ivy's "basedir must be absolute" and a name of "?"."""
    options = [f'-Duser.home="{tmp_path}"', f"-Duser.name=user-{os.getuid()}"]
    assert java_options() == options
    os.environ["SPARK_SUBMIT_OPTS"] = "-Duser.language=en"
    ensure_user()
    ensure_user()
    assert os.environ["SPARK_SUBMIT_OPTS"] == " ".join([*options, "-Duser.language=en"])


@pytest.mark.usefixtures("no_entry")
def test_a_user_without_an_entry_logs_in_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Detects Hadoop's "invalid null input: name"."""
    conf, jvm, starting = SparkConf(loadDefaults=False), Mock(), Mock()
    monkeypatch.setattr(SparkContext, "_ensure_initialized", starting)
    monkeypatch.setattr(SparkContext, "_jvm", jvm)
    log_in(conf)
    starting.assert_called_once_with(conf=conf)
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    users.createRemoteUser.assert_called_once_with(f"user-{os.getuid()}")
    users.setLoginUser.assert_called_once_with(users.createRemoteUser.return_value)


@pytest.mark.usefixtures("entry")
def test_java_uses_tmpdir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By default Java writes to /tmp, which may be read-only, regardless of TMPDIR."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert java_options() == [f'-Djava.io.tmpdir="{tmp_path}"']


@pytest.mark.usefixtures("entry")
def test_a_home_that_is_not_writable_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    monkeypatch.setattr(system_user, "home_folder", lambda: other)
    assert java_options() == [f'-Duser.home="{other}"']
    description = describe_start_failure(RuntimeError("It failed.\nat Trace"))
    assert description == (
        f"It failed. The home folder {tmp_path} is missing or read-only: {other} was used "
        "instead. See Spark's messages above for details."
    )


@pytest.mark.usefixtures("no_entry")
def test_an_error_of_the_start_names_a_user_id_without_an_entry(tmp_path: Path) -> None:
    assert user_hint() == (
        f"The process runs as user ID {os.getuid()}, which has no entry in the user database "
        f"(/etc/passwd), so the name user-{os.getuid()} and the home folder {tmp_path} were used."
    )


def test_the_package_can_be_imported_without_a_folder_for_temporary_files() -> None:
    """`state_dir` has a default there; a program that sets `state_dir` does not use it."""
    program = (
        "import tempfile\n"
        "def none_usable(): raise FileNotFoundError('none')\n"
        "tempfile.gettempdir = none_usable\n"
        "from millstream import StreamsConfig\n"
        "print(StreamsConfig(application_id='a', bootstrap_servers='b:1').state_dir)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.stdout.strip(), ran.returncode) == ("/tmp/kafka-streams", 0), ran.stderr
