"""One run of a stage's query: it ends when it is told to, whatever Spark raises meanwhile."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from millstream import StreamsBuilder, StreamsConfig
from millstream.serdes import STRING
from millstream.structured import stage_query as stage_query_module
from millstream.structured.plan import stage_plan
from millstream.structured.stage_query import StageQuery


class Query:
    """Spark's query, as far as it is asked; `broken` names what raises an error."""

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
    """Spark's DataFrame and its DataStreamWriter in one, which take every option."""

    def __init__(self, query: Query) -> None:
        self.writeStream = self
        self.query = query

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self

    def start(self) -> Query:
        return self.query


def started(monkeypatch: pytest.MonkeyPatch, query: Query, *, has_jvm: bool = True) -> StageQuery:
    for name, value in {
        "Checkpoint": lambda session, place: Mock(query_id=None),
        "read_stage": lambda *_: Writer(query),
        "transformed": lambda frame, plan: frame,
        "as_records": lambda frame, plan: frame,
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


def test_a_query_without_a_batch_under_way_is_stopped_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query = Query()
    assert started(monkeypatch, query).stop(30.0)
    assert query.stopped == 1


@pytest.mark.parametrize("broken", ["isActive", "lastProgress", "status"])
def test_a_query_is_stopped_where_its_batch_cannot_be_followed(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """Hunts a query that runs on since a question about its batch failed."""
    query = Query(broken)
    run = started(monkeypatch, query)
    with pytest.raises(RuntimeError, match=broken):
        run.stop(30.0)
    assert query.stopped == 1


def test_a_query_whose_id_is_not_known_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hunts a query that was started by a constructor that then failed."""
    query = Query("id")
    run = started(monkeypatch, query)
    with pytest.raises(RuntimeError, match="id"):
        _ = run.id
    assert run.stop(30.0)
    assert query.stopped == 1


def test_a_query_has_ended_with_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query("stop")
    assert not started(monkeypatch, query, has_jvm=False).stop(30.0)
