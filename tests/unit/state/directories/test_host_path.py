"""Hosts with different disk paths can share one `state.dir` setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import ConfigError
from millstream.state.directories.state_directory import StateDirectory, resolve_state_dir


@pytest.mark.parametrize(
    ("setting", "path"),
    [
        ("/data/state", "/data/state"),
        ("${DISK}/state", "/mnt/b/state"),
        ("/${NAME}/${DISK}", "/n/mnt/b"),
        # Names of directories may contain a dollar sign.
        ("/data/$DISK", "/data/$DISK"),
        ("/data/${a b}", "/data/${a b}"),
    ],
)
def test_variables_are_resolved_on_the_host(setting: str, path: str) -> None:
    resolved = resolve_state_dir(setting, {"DISK": "/mnt/b", "NAME": "n"})
    assert resolved == Path(path.replace("//", "/"))


@pytest.mark.parametrize(("environment", "reason"), [({}, "not set"), ({"DISK": ""}, "empty")])
def test_the_error_names_a_missing_variable(environment: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"variable DISK is {reason} on .*spark.executorEnv"):
        resolve_state_dir("${DISK}/state", environment)


def test_the_state_directory_resolves_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISK", str(tmp_path))
    StateDirectory("${DISK}/state", "app").process_id()
    assert [path.name for path in (tmp_path / "state" / "app").iterdir()] == [
        "kafka-streams-process-metadata"
    ]
