"""A run of a stage's query can be stopped, even if Spark raises errors."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from millstream import StreamsBuilder, StreamsConfig
from millstream.dataframes import stage_query as stage_query_module
from millstream.dataframes.stage_plan import stage_plan
from millstream.dataframes.stage_query import StageQuery
from millstream.serdes import STRING


class Query:
    """The part of Spark's query that is used; reading the attribute named by `broken` raises an
    error."""

    def __init__(self, broken: str = "") -> None:
        self.broken = broken
        self.stopped = 0
        self.isActive = True
        self.lastProgress = None

    def __getattribute__(self, name: str) -> Any:
        if name == object.__getattribute__(self, "broken"):
            raise RuntimeError(f"py4j: {name}")
        return object.__getattribute__(self, name)

    @property
    def id(self) -> str:
        return "query"

    @property
    def status(self) -> dict[str, bool]:
        return {"isTriggerActive": False}

    def stop(self) -> None:
        self.stopped += 1
        self.isActive = False


class Writer:
    """Spark's DataFrame and DataStreamWriter in one, with any option."""

    def __init__(self, query: Query) -> None:
        self.writeStream = self
        self.query = query

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self

    def start(self) -> Query:
        return self.query


def started(monkeypatch: pytest.MonkeyPatch, query: Query, *, has_jvm: bool = True) -> StageQuery:
    for name, value in {
        "QueryCheckpoint": lambda session, place: Mock(query_id=None),
        "read_stage": lambda *_: Writer(query),
        "apply_function": lambda frame, plan: frame,
        "select_records": lambda frame, plan: frame,
        "output_mode": lambda records: "append",
        "has_jvm": lambda context: has_jvm,
    }.items():
        monkeypatch.setattr(stage_query_module, name, value)
    config = StreamsConfig(application_id="app", bootstrap_servers="not-used:9092")
    builder = StreamsBuilder()
    stream = builder.stream("orders", key=STRING, value=STRING)
    stages = stream.transform_dataframe(lambda frame: frame, key=STRING, value=STRING, name="stage")
    stages.to("out")
    (stage,) = builder.build().dataframe_stages.values()
    return StageQuery(Mock(), stage_plan(stage, config), config, 1, ({}, None))


def test_a_query_without_a_running_batch_is_stopped_immediately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query = Query()
    assert started(monkeypatch, query).stop(30.0)
    assert query.stopped == 1


@pytest.mark.parametrize("broken", ["isActive", "lastProgress", "status"])
def test_a_query_is_stopped_if_its_batch_cannot_be_observed(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """Detects a query that continues because reading its state failed."""
    query = Query(broken)
    run = started(monkeypatch, query)
    with pytest.raises(RuntimeError, match=broken):
        run.stop(30.0)
    assert query.stopped == 1


def test_a_query_with_an_unknown_id_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Detects a query that was started by a constructor that failed afterwards."""
    query = Query("id")
    run = started(monkeypatch, query)
    with pytest.raises(RuntimeError, match="id"):
        _ = run.id
    assert run.stop(30.0)
    assert query.stopped == 1


def test_a_query_ends_with_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query("stop")
    assert not started(monkeypatch, query, has_jvm=False).stop(30.0)
