"""How far a store says that it is, by what lies in front of it in its task."""

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
from millstream.runtime.queries.questions import AskStore
from millstream.runtime.queries.reach import Upstream, reached, upstream_of_stores
from millstream.runtime.states import TaskState
from millstream.runtime.task.stream_task import StreamTask
from millstream.serdes import LONG, STRING
from millstream.state.queries.reads import Read, ReadKind


def counted(builder: StreamsBuilder, *, caching: bool, topic: str = "in") -> KTable[str, int]:
    """The table `counts` of how often each key came."""
    grouped = builder.stream(topic, key=STRING, value=STRING).group_by_key()
    return grouped.count(store=Materialized("counts", caching=caching))


def kept(name: str, *, caching: bool = False) -> Materialized[str, int]:
    return Materialized(name, key=STRING, value=LONG, caching=caching)


class Task(QueriedTask):
    """Tells how far its stores are."""

    def at(self, store: str, *, past_cache: bool = False) -> Mapping[str, Mapping[int, int]]:
        """The position of a store."""
        read = Read(ReadKind.GET, b"a", past_cache=past_cache)
        (answer,) = self.answer(AskStore(store, read, "a key")).tasks
        assert answer.reason is None, answer
        position: Mapping[str, Mapping[int, int]] = answer.position
        return position

    def value(self, store: str) -> bytes | None:
        """What is found of the key `a` in a store."""
        (answer,) = self.answer(AskStore(store, Read(ReadKind.GET, b"a"), "a key")).tasks
        return answer.page[0][1] if answer.page else None


@contextmanager
def running(builder: StreamsBuilder) -> Iterator[Task]:
    task = Task(builder.build())
    try:
        yield task
    finally:
        task.close()


def upstream_of(builder: StreamsBuilder) -> Mapping[str, Upstream]:
    """What lies in front of each store; no two sub-topologies have one of the same name."""
    parts = upstream_of_stores(builder.build()._subtopologies(), CONFIG.application_id)
    return {store: upstream for part in parts.values() for store, upstream in part.items()}


def test_a_store_is_where_its_task_has_read_even_if_that_changed_nothing() -> None:
    """Goal: whoever waits for a record gets an answer once it was processed, changed or not."""
    builder = StreamsBuilder()
    counts = counted(builder, caching=True)
    counts.filter(lambda key, _: key == "a", store=kept("only-a"))
    with running(builder) as task:
        assert task.at("counts") == {}, "nothing was read"
        task.write("in", b"a", b"x")
        assert task.at("counts") == {"in": {0: 0}}
        task.write("in", None, b"no key, not counted")
        assert task.at("counts") == {"in": {0: 1}}


def test_past_its_own_cache_a_store_is_where_the_last_commit_was() -> None:
    builder = StreamsBuilder()
    counted(builder, caching=True)
    with running(builder) as task:
        task.write("in", b"a", b"x")
        task.commit()
        task.write("in", b"a", b"x")
        assert task.at("counts", past_cache=True) == {"in": {0: 0}}
        assert task.at("counts") == {"in": {0: 1}}
        task.commit()
        assert task.at("counts", past_cache=True) == {"in": {0: 1}}


def test_without_a_cache_there_is_nothing_to_leave_out() -> None:
    builder = StreamsBuilder()
    counted(builder, caching=False)
    with running(builder) as task:
        task.write("in", b"a", b"x")
        assert task.at("counts", past_cache=True) == {"in": {0: 0}}


def test_behind_the_cache_of_another_store_it_is_where_the_last_commit_was() -> None:
    """Goal: a position never counts what waits in a cache before the store."""
    builder = StreamsBuilder()
    counted(builder, caching=True).map_values(lambda n: n * 10, store=kept("tens"))
    with running(builder) as task:
        task.write("in", b"a", b"x")
        assert (task.at("tens"), task.value("tens")) == ({}, None)
        task.commit()
        assert task.at("tens") == {"in": {0: 0}}
        found = task.value("tens")
        assert found is not None
        assert found.endswith(bytes([10]))
        task.write("in", b"a", b"x")
        assert (task.at("tens"), task.value("tens")) == ({"in": {0: 0}}, found)


def test_behind_a_store_without_a_cache_it_is_where_the_task_has_read() -> None:
    builder = StreamsBuilder()
    counted(builder, caching=False).map_values(lambda n: n * 10, store=kept("tens"))
    with running(builder) as task:
        task.write("in", b"a", b"x")
        assert task.value("tens") is not None
        assert task.at("tens") == {"in": {0: 0}}


def test_a_table_of_two_topics_is_at_both() -> None:
    """Goal: each side of a join counts. (Of a store of one side the other may count as well: its
    records were read, and changed nothing there.)"""
    builder = StreamsBuilder()
    left = builder.table("left", key=STRING, value=STRING, store=Materialized("l", caching=False))
    right = builder.table("right", key=STRING, value=STRING, store=Materialized("r", caching=False))
    joined = Materialized("both", key=STRING, value=STRING, caching=False)
    left.join(right, lambda one, other: one + other, store=joined)
    with running(builder) as task:
        task.write("left", b"a", b"x")
        task.write("right", b"a", b"y")
        task.write("right", b"b", b"z")
        assert task.at("both") == {"left": {0: 0}, "right": {0: 1}}
        assert task.at("l")["left"] == {0: 0}
        assert task.at("r")["right"] == {0: 1}


def test_behind_the_cache_of_one_side_a_join_is_where_the_last_commit_was() -> None:
    builder = StreamsBuilder()
    left = builder.table("left", key=STRING, value=STRING, store=Materialized("l", caching=True))
    right = builder.table("right", key=STRING, value=STRING, store=Materialized("r", caching=False))
    joined = Materialized("both", key=STRING, value=STRING, caching=False)
    left.join(right, lambda one, other: one + other, store=joined)
    with running(builder) as task:
        task.write("right", b"a", b"y")
        task.write("left", b"a", b"x")
        assert (task.at("both"), task.value("both")) == ({}, None)
        task.commit()
        assert task.at("both") == {"left": {0: 0}, "right": {0: 0}}
        assert task.value("both") is not None


def test_merged_topics_are_each_told_and_others_of_the_task_are_not() -> None:
    builder = StreamsBuilder()
    one = builder.stream("one", key=STRING, value=STRING)
    merged = one.merge(builder.stream("two", key=STRING, value=STRING))
    merged.group_by_key(key=STRING, value=STRING).count(store=Materialized("counts", caching=False))
    counted_apart = builder.stream("three", key=STRING, value=STRING).group_by_key()
    counted_apart.count(store=Materialized("apart", caching=False))
    with running(builder) as task:
        for topic in ("one", "two", "two", "three"):
            task.write(topic, b"a", b"x")
        assert task.at("counts") == {"one": {0: 0}, "two": {0: 1}}
        assert task.at("apart") == {"three": {0: 0}}


def test_a_commit_does_not_tell_of_records_after_it() -> None:
    builder = StreamsBuilder()
    counted(builder, caching=True).map_values(lambda n: n, store=kept("same"))
    with running(builder) as task:
        for _ in range(3):
            task.write("in", b"a", b"x")
        task.commit()
        task.write("in", b"a", b"x")
        assert task.at("same") == {"in": {0: 2}}
        assert task.at("counts") == {"in": {0: 3}}


@pytest.mark.parametrize(
    ("is_logged", "read", "expected"),
    [
        # It was restored up to what was committed, and stands for that.
        (True, 7, {"in": {0: 6}}),
        # It began empty, wherever the task goes on.
        (False, 7, {}),
        (False, 8, {"in": {0: 7}}),
        (True, 8, {"in": {0: 7}}),
    ],
)
def test_a_task_that_has_just_begun_stands_for_what_was_restored(
    is_logged: bool, read: int, expected: Mapping[str, Mapping[int, int]]
) -> None:
    """Method: a task that goes on at offset 7, before and after its first record."""
    upstream = Upstream(frozenset({"in"}), (), frozenset(), is_logged)
    task = begun_at(7, read)
    assert reached(task, upstream, "counts", past_cache=False).as_dict() == expected


@pytest.mark.parametrize("state", [TaskState.RESTORING, TaskState.STANDBY])
def test_of_a_store_that_follows_its_changelog_nothing_is_known(state: TaskState) -> None:
    upstream = Upstream(frozenset({"in"}), (), frozenset(), is_logged=True)
    assert not reached(begun_at(7, 8, state), upstream, "counts", past_cache=False).as_dict()


def begun_at(began: int, read: int, state: TaskState = TaskState.RUNNING) -> StreamTask:
    """As much of a task as tells how far it is."""
    queue = SimpleNamespace(committed_offset=began, next_offset=lambda: read)
    queues = {TopicPartition("in", 0): queue}
    task = SimpleNamespace(
        state=state,
        stores=SimpleNamespace(caches=dict),
        processing=SimpleNamespace(group=SimpleNamespace(queues=queues)),
        committed={},
    )
    return cast(StreamTask, task)


# --- what lies in front of a store ---------------------------------------------------------------


def test_in_front_of_a_store_are_the_topics_and_stores_on_the_way_to_it() -> None:
    builder = StreamsBuilder()
    counts = counted(builder, caching=True)
    counts.map_values(lambda n: n, store=kept("first")).map_values(
        lambda n: n, store=kept("second")
    )
    builder.stream("other", key=STRING, value=STRING).group_by_key().count(store="others")
    found = upstream_of(builder)
    assert found["counts"] == Upstream(frozenset({"in"}), (), frozenset(), is_logged=True)
    assert found["first"].stores == {"counts"}
    assert found["second"].stores == {"counts", "first"}
    assert found["others"].topics == {"other"}


def test_topics_that_match_a_pattern_are_in_front_too() -> None:
    builder = StreamsBuilder()
    named = builder.stream("named", key=STRING, value=STRING)
    matching = builder.stream(re.compile("in-.*"), key=STRING, value=STRING)
    merged = named.merge(matching)
    merged.group_by_key(key=STRING, value=STRING).count(store="counts")
    counts = upstream_of(builder)["counts"]
    assert [counts.reads(topic) for topic in ("named", "in-1", "my-in-1")] == [True, True, False]


def test_a_topic_that_another_source_reads_by_name_matches_no_pattern() -> None:
    """As the assignment has it: the application's own topics may look like what is matched."""
    builder = StreamsBuilder()
    matching = builder.stream(re.compile("(in|shop)-.*"), key=STRING, value=STRING)
    matching.group_by_key().count(store="counts")
    other = builder.stream("other", key=STRING, value=STRING).repartition(name="own")
    other.to("out", key=STRING, value=STRING)
    counts = upstream_of(builder)["counts"]
    own = "shop-own-repartition"
    assert [counts.reads(topic) for topic in ("in-1", "shop-1", own)] == [True, True, False]


def test_behind_a_repartition_topic_that_one_is_in_front_by_its_real_name() -> None:
    builder = StreamsBuilder()
    clicks = builder.stream("in", key=STRING, value=STRING)
    by_value = clicks.group_by(lambda _, value: value, key=STRING, value=STRING, name="by")
    by_value.count(store="counts")
    assert upstream_of(builder)["counts"].topics == {"shop-by-repartition"}


def test_a_store_that_nobody_keeps_elsewhere_is_not_logged() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).group_by_key().count(
        store=Materialized("counts", logging=False)
    )
    builder.stream("more", key=STRING, value=STRING).group_by_key().count(store="kept")
    found = upstream_of(builder)
    assert (found["counts"].is_logged, found["kept"].is_logged) == (False, True)


def test_a_stream_that_looks_into_a_table_is_not_where_the_table_is() -> None:
    """Goal: what changes a table changes nothing in stores behind the join."""
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
        assert task.at("hits") == {}
        task.write("in", b"a", b"y")
        assert task.at("hits") == {"in": {0: 0}}
        assert task.at("rows")["left"] == {0: 0}


def test_what_is_held_back_on_the_way_does_not_count() -> None:
    """Goal: a commit empties caches, but not what waits for its time."""
    builder = StreamsBuilder()
    calm = Suppressed.until_time_limit(timedelta(hours=1), BufferConfig.unbounded())
    counts = counted(builder, caching=False)
    counts.suppress(calm).map_values(lambda n: n, store=kept("calm"))
    with running(builder) as task:
        for _ in range(3):
            task.write("in", b"a", b"x")
        task.commit()
        assert task.value("calm") is None
        assert task.at("calm").get("in", {}).get(0, -1) < 0
        assert task.at("counts") == {"in": {0: 2}}
