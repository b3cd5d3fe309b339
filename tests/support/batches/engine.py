"""Runs a program on the batch executor of one task, with chosen batch sizes."""

from __future__ import annotations

import tempfile
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

from millstream.java_priority_queue import JavaPriorityQueue
from millstream.record import Headers, TopicPartition
from millstream.serdes import JSON, LONG, STRING
from millstream.testing.driver_topics import CapturedRecord, CapturingCollector, RawColumns
from millstream.testing.topology_metadata import as_one_subtopology
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.materialized import Materialized
from millstream.topology.physical.topology import Topology
from support.batches.oracle import LoggedChange, OutRecord
from support.batches.programs import (
    FLAT_PAIR_MAPPERS,
    FLAT_VALUE_MAPPERS,
    KEY_SELECTORS,
    PAIR_MAPPERS,
    PREDICATES,
    REDUCERS,
    VALUE_MAPPERS,
    Event,
    Program,
    collect_in_place,
)
from support.tasks.task_setup import start_task, task_services


class EngineRun:
    """The engine's results: outputs by topic, changelogs and stores by operation."""

    def __init__(self) -> None:
        self.outputs: dict[str, list[OutRecord]] = defaultdict(list)
        self.changelogs: dict[int, list[LoggedChange]] = defaultdict(list)
        self.stores: dict[int, dict[str, tuple[Any, int]]] = defaultdict(dict)


def build(program: Program, *, caching: bool) -> Topology:
    """Build the program as a topology of the DSL."""
    builder = StreamsBuilder()
    streams: list[Any] = []
    for index, op in enumerate(program):
        parent: Any = streams[op.parents[0]] if op.parents else None
        serde: Any = {"count": LONG, "reduce": STRING, "aggregate": JSON}.get(op.name)
        store = Materialized(
            name=f"store-{index}", kind="in_memory", key=STRING, value=serde, caching=caching
        )
        match op.name:
            case "stream":
                made = builder.stream(op.text, key=STRING, value=STRING)
            case "filter":
                made = parent.filter(PREDICATES[op.function])
            case "map_values":
                made = parent.map_values(VALUE_MAPPERS[op.function])
            case "flat_map_values":
                made = parent.flat_map_values(FLAT_VALUE_MAPPERS[op.function])
            case "peek":
                made = parent.peek(lambda k, v: None)
            case "map":
                made = parent.map(PAIR_MAPPERS[op.function])
            case "select_key":
                made = parent.select_key(KEY_SELECTORS[op.function])
            case "flat_map":
                made = parent.flat_map(FLAT_PAIR_MAPPERS[op.function])
            case "merge":
                made = parent.merge(streams[op.parents[1]])
            case "branch":
                made, otherwise = parent.branch(PREDICATES[op.function], lambda k, v: True)
            case "otherwise":
                made = otherwise
            case "to":
                made = parent.to(op.text, key=STRING, value=STRING)
            case _:
                grouped = parent.group_by_key(key=STRING, value=STRING)
                if op.name == "count":
                    table = grouped.count(store=store)
                elif op.name == "reduce":
                    table = grouped.reduce(REDUCERS[op.function], store=store)
                else:
                    table = grouped.aggregate(list, collect_in_place, store=store)
                made = table.to_stream().map_values(_text)
        streams.append(made)
    return builder.build()


def run_engine(
    program: Program,
    events: Sequence[Event],
    batch_size: int,
    *,
    cache_bytes: int = 0,
    commit_every: int | None = None,
) -> EngineRun:
    """Queue all events, then process them in batches of at most `batch_size`."""
    topology = build(program, caching=cache_bytes > 0)
    collector = CapturingCollector()
    with tempfile.TemporaryDirectory() as folder:
        services = task_services(folder, collector, cache_bytes=cache_bytes)
        run = EngineRun()
        # One task for all sub-topologies, as in the test driver: writes of different tasks to a
        # topic have no order.
        topology_of_task = as_one_subtopology(topology)
        task = start_task(topology_of_task, services)
        for topic, columns in _columns(events).items():
            if (place := TopicPartition(topic, 0)) in task.partitions:
                task.add_records(place, columns)
        done = 0
        while task.buffered:
            task.step(batch_size)
            done += 1
            if commit_every is not None and done % commit_every == 0:
                _commit(task, collector)
        _commit(task, collector)
        for name in task.stores.names:
            index = int(name.removeprefix("store-"))
            for key, found in task.stores.store(name).all():
                run.stores[index][key] = (found.value, found.timestamp)
        task.close(clean=True)
        _collect_results(run, program, collector.take())
        return run


def taking_order(program: Program, events: Sequence[Event]) -> list[Event]:
    """The order in which Kafka Streams takes queued events: lowest head timestamp first.

    If head timestamps are equal, the topic that received its first record earlier comes first.
    """
    queues: dict[str, deque[Event]] = {}
    read = {op.text for op in program if op.name == "stream"}
    for event in events:
        if event.topic in read:
            queues.setdefault(event.topic, deque()).append(event)
    by_time: JavaPriorityQueue[deque[Event]] = JavaPriorityQueue(lambda q: q[0].timestamp)
    for waiting in queues.values():
        by_time.offer(waiting)
    taken: list[Event] = []
    while len(by_time):
        waiting = by_time.poll()
        taken.append(waiting.popleft())
        if waiting:
            by_time.offer(waiting)
    return taken


def _commit(task: Any, collector: CapturingCollector) -> None:
    task.prepare_commit()
    task.post_commit(task.offsets_to_commit(), collector.acked_offsets())


def _columns(events: Sequence[Event]) -> dict[str, RawColumns]:
    columns: dict[str, RawColumns] = {}
    headers: dict[str, list[Headers]] = defaultdict(list)
    for event in events:
        of_topic = columns.setdefault(event.topic, RawColumns([], [], [], [], None))
        of_topic.keys.append(None if event.key is None else event.key.encode())
        of_topic.values.append(None if event.value is None else event.value.encode())
        of_topic.timestamps.append(event.timestamp)
        of_topic.offsets.append(len(of_topic.offsets))
        headers[event.topic].append(event.headers)
    # A poll returns no headers column if no record has headers.
    return {
        topic: raw._replace(headers=headers[topic]) if any(headers[topic]) else raw
        for topic, raw in columns.items()
    }


def _collect_results(run: EngineRun, program: Program, records: list[CapturedRecord]) -> None:
    for record in records:
        assert record.timestamp is not None
        key: Any = STRING.deserialize("", record.key)
        if record.topic.startswith("app-store-"):
            index = int(record.topic.removeprefix("app-store-").removesuffix("-changelog"))
            name = program[index].name
            serde: Any = {"count": LONG, "reduce": STRING, "aggregate": JSON}[name]
            value = serde.deserialize("", record.value)
            run.changelogs[index].append((key, value, record.timestamp))
        else:
            value = STRING.deserialize("", record.value)
            run.outputs[record.topic].append((key, value, record.timestamp, record.headers))


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)
