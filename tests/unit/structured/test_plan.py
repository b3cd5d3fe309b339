"""What a stage is on a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream import StreamsConfig
from millstream.state.directories.state_directory import StateDirectory
from millstream.structured.plan import checkpoint_of


def config(**settings: object) -> StreamsConfig:
    return StreamsConfig.from_properties(
        {"application.id": "shop", "bootstrap.servers": "b:1", **settings}
    )


def test_a_checkpoint_lies_beside_the_state_of_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the host's environment says where that is: what deletes state deletes it, too."""
    monkeypatch.setenv("STATE_DISK", str(tmp_path))
    here = config(**{"state.dir": "${STATE_DISK}/state"})
    beside = StateDirectory(here.state_dir, "shop").application_path
    assert checkpoint_of(here, "loud") == str(beside / "dataframes" / "loud")
    assert beside == tmp_path / "state" / "shop"


def test_a_checkpoint_may_lie_where_all_drivers_reach_it() -> None:
    shared = config(**{"dataframe.checkpoint.dir": "hdfs://node/checkpoints/"})
    assert checkpoint_of(shared, "loud") == "hdfs://node/checkpoints/shop/loud"
