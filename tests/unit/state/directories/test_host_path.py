"""Goal: hosts whose disks are at different places can have one setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import ConfigError
from millstream.state.directories.host_path import state_dir_here
from millstream.state.directories.state_directory import StateDirectory


@pytest.mark.parametrize(
    ("setting", "path"),
    [
        ("/data/state", "/data/state"),
        ("${DISK}/state", "/mnt/b/state"),
        ("/${NAME}/${DISK}", "/n/mnt/b"),
        # Names of directories may hold a dollar.
        ("/data/$DISK", "/data/$DISK"),
        ("/data/${a b}", "/data/${a b}"),
    ],
)
def test_variables_are_those_of_the_host(setting: str, path: str) -> None:
    here = state_dir_here(setting, {"DISK": "/mnt/b", "NAME": "n"})
    assert here == Path(path.replace("//", "/"))


@pytest.mark.parametrize(("environment", "why"), [({}, "not set"), ({"DISK": ""}, "empty")])
def test_a_variable_that_a_host_lacks_is_named(environment: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=rf"variable DISK is {why} on .*spark.executorEnv"):
        state_dir_here("${DISK}/state", environment)


def test_everything_of_an_application_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISK", str(tmp_path))
    StateDirectory("${DISK}/state", "app").process_id()
    assert [path.name for path in (tmp_path / "state" / "app").iterdir()] == [
        "kafka-streams-process-metadata"
    ]
