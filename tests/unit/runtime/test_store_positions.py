"""Positions of stores, depending on the nodes in front of them in their task."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest
from support.tasks.served_tasks import CONFIG, QueriedTask

from millstream import (
    BufferConfig,
    KTable,
    Materialized,
    StreamsBuilder,
    Suppressed,
    TopicPartition,
)
from millstream.runtime.queries.query_messages import QueryStore
from millstream.runtime.queries.store_positions import Upstream, store_position, upstream_of_stores
from millstream.runtime.states.thread_states import TaskState
from millstream.runtime.task.stream_task import StreamTask
from millstream.serdes import LONG, STRING
from millstream.state.queries.read_requests import ReadKind, ReadRequest


def counted(builder: StreamsBuilder, *, caching: bool, topic: str = "in") -> KTable[str, int]:
    """Return the table `counts` with the number of records of each key."""
    grouped = builder.stream(topic, key=STRING, value=STRING).group_by_key()
    return grouped.count(store=Materialized("counts", caching=caching))


def materialized(name: str, *, caching: bool = False) -> Materialized[str, int]:
    return Materialized(name, key=STRING, value=LONG, caching=caching)


class PositionedTask(QueriedTask):
    """A task that returns the positions of its stores."""

    def position_of(
        self, store: str, *, skip_cache: bool = False
    ) -> Mapping[str, Mapping[int, int]]:
        """Return the position of a store."""
        read = ReadRequest(ReadKind.GET, b"a", skip_cache=skip_cache)
        (answer,) = self.answer(QueryStore(store, read, "a key")).tasks
        assert answer.reason is None, answer
        position: Mapping[str, Mapping[int, int]] = answer.position
        return position

    def value(self, store: str) -> bytes | None:
        """Return the value of the key `a` in a store."""
        (answer,) = self.answer(QueryStore(store, ReadRequest(ReadKind.GET, b"a"), "a key")).tasks
        return answer.page[0][1] if answer.page else None


@contextmanager
def running(builder: StreamsBuilder) -> Iterator[PositionedTask]:
    task = PositionedTask(builder.build())
    try:
        yield task
    finally:
        task.close()


def upstream_of(builder: StreamsBuilder) -> Mapping[str, Upstream]:
    """Return the upstream of each store; store names are unique in these topologies."""
    parts = upstream_of_stores(builder.build()._subtopologies(), CONFIG.application_id)
    return {store: upstream for part in parts.values() for store, upstream in part.items()}


def test_position_includes_records_that_changed_nothing() -> None:
    """A query that waits for a record is answered once the record was processed, changed or not."""
    builder = StreamsBuilder()
    counts = counted(builder, caching=True)
    counts.filter(lambda key, _: key == "a", store=materialized("only-a"))
    with running(builder) as task:
        assert task.position_of("counts") == {}, "nothing was read"
        task.write("in", b"a", b"x")
        assert task.position_of("counts") == {"in": {0: 0}}
        task.write("in", None, b"no key, not counted")
        assert task.position_of("counts") == {"in": {0: 1}}


def test_position_without_the_cache_is_that_of_the_last_commit() -> None:
    builder = StreamsBuilder()
    counted(builder, caching=True)
    with running(builder) as task:
        task.write("in", b"a", b"x")
        task.commit()
        task.write("in", b"a", b"x")
        assert task.position_of("counts", skip_cache=True) == {"in": {0: 0}}
        assert task.position_of("counts") == {"in": {0: 1}}
        task.commit()
        assert task.position_of("counts", skip_cache=True) == {"in": {0: 1}}


def test_skip_cache_has_no_effect_without_a_cache() -> None:
    builder = StreamsBuilder()
    counted(builder, caching=False)
    with running(builder) as task:
        task.write("in", b"a", b"x")
        assert task.position_of("counts", skip_cache=True) == {"in": {0: 0}}


def test_position_behind_another_cache_is_that_of_the_last_commit() -> None:
    """A position never includes records that wait in a cache before the store."""
    builder = StreamsBuilder()
    counted(builder, caching=True).map_values(lambda n: n * 10, store=materialized("tens"))
    with running(builder) as task:
        task.write("in", b"a", b"x")
        assert (task.position_of("tens"), task.value("tens")) == ({}, None)
        task.commit()
        assert task.position_of("tens") == {"in": {0: 0}}
        found = task.value("tens")
        assert found is not None
        assert found.endswith(bytes([10]))
        task.write("in", b"a", b"x")
        assert (task.position_of("tens"), task.value("tens")) == ({"in": {0: 0}}, found)


def test_position_behind_a_store_without_a_cache_is_that_of_the_task() -> None:
    builder = StreamsBuilder()
    counted(builder, caching=False).map_values(lambda n: n * 10, store=materialized("tens"))
    with running(builder) as task:
        task.write("in", b"a", b"x")
        assert task.value("tens") is not None
        assert task.position_of("tens") == {"in": {0: 0}}


def test_position_of_a_join_includes_both_topics() -> None:
    """The position of one side may include the other side as well: its records were read and
    changed nothing there."""
    builder = StreamsBuilder()
    left = builder.table("left", key=STRING, value=STRING, store=Materialized("l", caching=False))
    right = builder.table("right", key=STRING, value=STRING, store=Materialized("r", caching=False))
    joined = Materialized("both", key=STRING, value=STRING, caching=False)
    left.join(right, lambda one, other: one + other, store=joined)
    with running(builder) as task:
        task.write("left", b"a", b"x")
        task.write("right", b"a", b"y")
        task.write("right", b"b", b"z")
        assert task.position_of("both") == {"left": {0: 0}, "right": {0: 1}}
        assert task.position_of("l")["left"] == {0: 0}
        assert task.position_of("r")["right"] == {0: 1}


def test_position_of_a_join_behind_a_cache_is_that_of_the_last_commit() -> None:
    builder = StreamsBuilder()
    left = builder.table("left", key=STRING, value=STRING, store=Materialized("l", caching=True))
    right = builder.table("right", key=STRING, value=STRING, store=Materialized("r", caching=False))
    joined = Materialized("both", key=STRING, value=STRING, caching=False)
    left.join(right, lambda one, other: one + other, store=joined)
    with running(builder) as task:
        task.write("right", b"a", b"y")
        task.write("left", b"a", b"x")
        assert (task.position_of("both"), task.value("both")) == ({}, None)
        task.commit()
        assert task.position_of("both") == {"left": {0: 0}, "right": {0: 0}}
        assert task.value("both") is not None


def test_position_includes_merged_topics_and_no_others_of_the_task() -> None:
    builder = StreamsBuilder()
    one = builder.stream("one", key=STRING, value=STRING)
    merged = one.merge(builder.stream("two", key=STRING, value=STRING))
    merged.group_by_key(key=STRING, value=STRING).count(store=Materialized("counts", caching=False))
    separate = builder.stream("three", key=STRING, value=STRING).group_by_key()
    separate.count(store=Materialized("separate", caching=False))
    with running(builder) as task:
        for topic in ("one", "two", "two", "three"):
            task.write(topic, b"a", b"x")
        assert task.position_of("counts") == {"one": {0: 0}, "two": {0: 1}}
        assert task.position_of("separate") == {"three": {0: 0}}


def test_position_of_a_commit_excludes_later_records() -> None:
    builder = StreamsBuilder()
    counted(builder, caching=True).map_values(lambda n: n, store=materialized("same"))
    with running(builder) as task:
        for _ in range(3):
            task.write("in", b"a", b"x")
        task.commit()
        task.write("in", b"a", b"x")
        assert task.position_of("same") == {"in": {0: 2}}
        assert task.position_of("counts") == {"in": {0: 3}}


@pytest.mark.parametrize(
    ("is_logged", "read", "expected"),
    [
        # The store was restored up to the committed offset.
        (True, 7, {"in": {0: 6}}),
        # A store without a changelog starts empty, even if the task continues at a later offset.
        (False, 7, {}),
        (False, 8, {"in": {0: 7}}),
        (True, 8, {"in": {0: 7}}),
    ],
)
def test_position_of_a_started_task_is_that_of_its_restoration(
    is_logged: bool, read: int, expected: Mapping[str, Mapping[int, int]]
) -> None:
    """The task continues at offset 7; the position is read before and after its first record."""
    upstream = Upstream(frozenset({"in"}), (), frozenset(), is_logged)
    task = task_at(7, read)
    assert store_position(task, upstream, "counts", skip_cache=False).as_dict() == expected


@pytest.mark.parametrize("state", [TaskState.RESTORING, TaskState.STANDBY])
def test_position_of_a_store_that_follows_its_changelog_is_unknown(state: TaskState) -> None:
    upstream = Upstream(frozenset({"in"}), (), frozenset(), is_logged=True)
    assert not store_position(task_at(7, 8, state), upstream, "counts", skip_cache=False).as_dict()


def task_at(start: int, read: int, state: TaskState = TaskState.RUNNING) -> StreamTask:
    """Return the parts of a task that define its position."""
    queue = SimpleNamespace(committed_offset=start, next_offset=lambda: read)
    queues = {TopicPartition("in", 0): queue}
    task = SimpleNamespace(
        state=state,
        stores=SimpleNamespace(caches=dict),
        processing=SimpleNamespace(group=SimpleNamespace(queues=queues)),
        committed={},
    )
    return cast(StreamTask, task)


# --- the upstream of a store ---------------------------------------------------------------------


def test_upstream_contains_the_topics_and_stores_on_the_path_to_a_store() -> None:
    builder = StreamsBuilder()
    counts = counted(builder, caching=True)
    counts.map_values(lambda n: n, store=materialized("first")).map_values(
        lambda n: n, store=materialized("second")
    )
    builder.stream("other", key=STRING, value=STRING).group_by_key().count(store="others")
    found = upstream_of(builder)
    assert found["counts"] == Upstream(frozenset({"in"}), (), frozenset(), is_logged=True)
    assert found["first"].stores == {"counts"}
    assert found["second"].stores == {"counts", "first"}
    assert found["others"].topics == {"other"}


def test_upstream_contains_topics_that_match_a_pattern() -> None:
    builder = StreamsBuilder()
    named = builder.stream("named", key=STRING, value=STRING)
    matching = builder.stream(re.compile("in-.*"), key=STRING, value=STRING)
    merged = named.merge(matching)
    merged.group_by_key(key=STRING, value=STRING).count(store="counts")
    counts = upstream_of(builder)["counts"]
    assert [counts.reads(topic) for topic in ("named", "in-1", "my-in-1")] == [True, True, False]


def test_topic_that_another_source_reads_by_name_matches_no_pattern() -> None:
    """As in the assignment: the pattern may match names of the application's own topics."""
    builder = StreamsBuilder()
    matching = builder.stream(re.compile("(in|shop)-.*"), key=STRING, value=STRING)
    matching.group_by_key().count(store="counts")
    other = builder.stream("other", key=STRING, value=STRING).repartition(name="own")
    other.to("out", key=STRING, value=STRING)
    counts = upstream_of(builder)["counts"]
    own = "shop-own-repartition"
    assert [counts.reads(topic) for topic in ("in-1", "shop-1", own)] == [True, True, False]


def test_upstream_contains_a_repartition_topic_by_its_full_name() -> None:
    builder = StreamsBuilder()
    clicks = builder.stream("in", key=STRING, value=STRING)
    by_value = clicks.group_by(lambda _, value: value, key=STRING, value=STRING, name="by")
    by_value.count(store="counts")
    assert upstream_of(builder)["counts"].topics == {"shop-by-repartition"}


def test_store_without_a_changelog_is_not_logged() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).group_by_key().count(
        store=Materialized("counts", logging=False)
    )
    builder.stream("more", key=STRING, value=STRING).group_by_key().count(store="kept")
    found = upstream_of(builder)
    assert (found["counts"].is_logged, found["kept"].is_logged) == (False, True)


def test_position_behind_a_stream_table_join_excludes_the_table() -> None:
    """Changes of the table do not change stores behind the join."""
    builder = StreamsBuilder()
    named = Materialized("rows", caching=False)
    table = builder.table("left", key=STRING, value=STRING, store=named)
    clicks = builder.stream("in", key=STRING, value=STRING).join(
        table, lambda click, row: click + row
    )
    grouped = clicks.group_by_key(key=STRING, value=STRING)
    grouped.count(store=Materialized("hits", caching=False))
    with running(builder) as task:
        task.write("left", b"a", b"x")
        assert task.position_of("hits") == {}
        task.write("in", b"a", b"y")
        assert task.position_of("hits") == {"in": {0: 0}}
        assert task.position_of("rows")["left"] == {0: 0}


def test_suppressed_records_do_not_count() -> None:
    """A commit flushes caches, but not records that are suppressed."""
    builder = StreamsBuilder()
    calm = Suppressed.until_time_limit(timedelta(hours=1), BufferConfig.unbounded())
    counts = counted(builder, caching=False)
    counts.suppress(calm).map_values(lambda n: n, store=materialized("calm"))
    with running(builder) as task:
        for _ in range(3):
            task.write("in", b"a", b"x")
        task.commit()
        assert task.value("calm") is None
        assert task.position_of("calm").get("in", {}).get(0, -1) < 0
        assert task.position_of("counts") == {"in": {0: 2}}
