"""The checkpoint location of a stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream import StreamsConfig
from millstream.dataframes.stage_plan import checkpoint_of
from millstream.state.directories.state_directory import StateDirectory


def config(**settings: object) -> StreamsConfig:
    return StreamsConfig.from_properties(
        {"application.id": "shop", "bootstrap.servers": "b:1", **settings}
    )


def test_the_checkpoint_is_in_the_state_directory_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the directory contains an environment variable. Deleting the state deletes the
    checkpoint."""
    monkeypatch.setenv("STATE_DISK", str(tmp_path))
    local = config(**{"state.dir": "${STATE_DISK}/state"})
    beside = StateDirectory(local.state_dir, "shop").application_path
    assert checkpoint_of(local, "loud") == str(beside / "dataframes" / "loud")
    assert beside == tmp_path / "state" / "shop"


def test_the_checkpoint_can_be_in_a_shared_location() -> None:
    shared = config(**{"dataframe.checkpoint.dir": "hdfs://node/checkpoints/"})
    assert checkpoint_of(shared, "loud") == "hdfs://node/checkpoints/shop/loud"
