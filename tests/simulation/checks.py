"""What must hold at every moment of a history, and what at its end.

- An offset is committed only after everything that its record caused is in the logs.
- In one generation one member commits a partition; no two members of a generation run one task.
- A task begins to process with what its changelogs told up to where it restored, and with nothing
  missing of what is committed.
- What is processed twice was not committed when its owner lost it.
- Records of one partition come out in its order, or in that of their keys where calls beside the
  loop keep no more.
- In the end every id is in every place that it had to pass, and each store is what its changelog
  says.

At-least-once has no fence: what a process that was given up for dead has on the wire is still
written, over what the new owner has written. Keys that this befell are told apart.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

from millstream.record import TaskId, TopicPartition
from millstream.runtime.states import TaskState
from millstream.runtime.task.stream_task import StreamTask
from simulation.application import (
    CAUSED,
    FOLDED,
    INPUT,
    OUTPUT,
    REPARTITION,
    SEEN,
    WINDOWED,
    group_of,
    ids_in,
    key_of,
)
from simulation.broker.cluster import Cluster
from simulation.broker.group import Committed
from simulation.broker.log import Entry
from simulation.scheduler import Process

#: Which sub-topology writes a topic.
_WRITER: Final = {SEEN: 0, FOLDED: 1, WINDOWED: 1, OUTPUT: 1}
_STORES: Final = {SEEN: "seen", FOLDED: "folded", WINDOWED: "windowed"}
_READS: Final = {0: INPUT, 1: REPARTITION}


class ViolationError(AssertionError):
    """Something that must never be."""


class Checks:
    """Watches one history.

    Args:
        cluster: its cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._scheduler = cluster.scheduler
        #: Offset and id of what came into each partition that is read.
        self._brought: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
        self._written: dict[str, set[int]] = defaultdict(set)
        self._looked_at: Counter[TopicPartition] = Counter()
        self._committers: dict[tuple[int, TopicPartition], str] = {}
        self._source_of: dict[int, int] = {}
        self._seen: dict[TopicPartition, set[int]] = defaultdict(set)
        self._first_seen: dict[tuple[TopicPartition, int, Hashable], int] = {}
        #: Those that are sent again some time later, past others.
        self._refused: set[int] = set()
        #: Every record of the topics that stores are compared with, compacted or not.
        self._history: dict[TopicPartition, list[Entry]] = defaultdict(list)
        #: Who processes each task, and who began to last.
        self._running: dict[TaskId, dict[Process, str]] = defaultdict(dict)
        self._owner: dict[TaskId, Process] = {}
        self._open: dict[Process, dict[TaskId, StreamTask]] = defaultdict(dict)
        #: Where changelogs ended when a task that is to be active began to restore.
        self._ends: dict[tuple[Process, TopicPartition], int] = {}
        self._uncommitted: dict[Process, Counter[TaskId]] = defaultdict(Counter)
        #: How many of these are done with when the group has taken the offsets.
        self._committing: dict[Process, dict[TaskId, int]] = defaultdict(dict)
        self.processed: Counter[TaskId] = Counter()
        self.allowed: Counter[TaskId] = Counter()
        self.commits = 0
        self.started = 0
        #: Keys that somebody wrote who had lost the task.
        self.overwritten: set[tuple[str, bytes]] = set()
        #: Whether the order of first appearances is kept: not where a batch failed.
        self.in_order = True
        #: What must hold an id before the offset of the record that brought it is committed.
        self.caused: Mapping[str, Sequence[str]] = CAUSED
        #: What keeps its order within a partition of the input.
        self.line_of: Callable[[int], Hashable] = lambda record_id: None
        #: The group's member of a process.
        self.member_of: Callable[[Process], str] = lambda process: ""
        cluster.on_append.append(self.appended)
        cluster.on_refusal.append(self.refused)
        cluster.group.on_commit.append(self.committed)

    def fed(self, record_id: int, partition: int) -> None:
        """An input record is about to be written."""
        self._source_of[record_id] = partition

    # --- logs ----------------------------------------------------------------------------------

    def appended(self, place: TopicPartition, first: int, process: Process | None) -> None:
        """Records were appended."""
        self.written(place, entries_from(self._cluster.logs[place].entries, first), process)

    def refused(self, topic: str, value: bytes | None) -> None:
        """A record was not taken."""
        self._refused.update(ids_in(topic, value))

    def written(self, place: TopicPartition, entries: list[Entry], process: Process | None) -> None:
        """Records are there for everybody to read."""
        topic = place.topic
        writer = _WRITER.get(topic)
        zombie = writer is not None and self._is_zombie(TaskId(writer, place.partition), process)
        for entry in entries:
            ids = ids_in(topic, entry.value)
            self._written[topic].update(ids)
            if topic in _READS.values():
                for each in ids:
                    insort(self._brought[place], (entry.offset, each))
            if topic == REPARTITION:
                self._check_order(place, ids)
            if writer is not None:
                insort(self._history[place], entry, key=_offset)
                if zombie:
                    self._overwrite(topic, entry)

    def _is_zombie(self, task_id: TaskId, process: Process | None) -> bool:
        return self._owner.get(task_id) is not process

    def _overwrite(self, topic: str, entry: Entry) -> None:
        assert entry.key is not None
        if (topic, entry.key) not in self.overwritten:
            self.overwritten.add((topic, entry.key))
            self._scheduler.tell(f"{topic}: {entry.key!r} is written by one who lost the task")

    def _check_order(self, place: TopicPartition, ids: list[int]) -> None:
        for each in ids:
            if each in self._refused:
                continue
            line = (place, self._source_of[each], self.line_of(each))
            last = self._first_seen.get(line, -1)
            if each <= last:
                if self.in_order and each not in self._seen[place]:
                    raise ViolationError(f"{place}: {each} came first after {last}")
            else:
                self._first_seen[line] = each
            self._seen[place].add(each)

    def committed(
        self, generation: int, member_id: str, offsets: Mapping[TopicPartition, Committed]
    ) -> None:
        """The group took a commit."""
        self.commits += 1
        known_member = self._cluster.group.members.get(member_id)
        if known_member is not None and known_member.instance is not None:
            # A static member is the same one in its next life.
            member_id = known_member.instance
        for place, (offset, _, _) in offsets.items():
            known = self._committers.setdefault((generation, place), member_id)
            if known != member_id:
                raise ViolationError(
                    f"{place} is committed by {known} and {member_id} in generation {generation}"
                )
            if offset > self._cluster.logs[place].end:
                raise ViolationError(f"{place} ends before the committed offset {offset}")
            brought = self._brought[place]
            index = self._looked_at[place]
            while index < len(brought) and brought[index][0] < offset:
                record_id = brought[index][1]
                for topic in self.caused[place.topic]:
                    if record_id not in self._written[topic]:
                        raise ViolationError(
                            f"offset {offset} of {place} is committed, but {record_id}, which is "
                            f"before it, is not in {topic}"
                        )
                index += 1
            self._looked_at[place] = index

    # --- tasks ---------------------------------------------------------------------------------

    def opened(self, process: Process, task: StreamTask) -> None:
        """A task opened its stores."""
        self._open[process][task.task_id] = task

    def begins(self, process: Process, task: StreamTask) -> None:
        """A task is restored and begins to process."""
        task_id = task.task_id
        group = self._cluster.group
        member_id = self.member_of(process)
        # A process that was frozen may not know yet that the group has gone on without it.
        counts = member_id in group.members
        for other, others_id in self._running[task_id].items():
            member = group.members.get(others_id)
            if other is process or not other.alive or member is None or member.instance is not None:
                continue
            if counts:
                raise ViolationError(
                    f"{process.name} begins task {task_id}, which {other.name} still works on in "
                    f"generation {group.generation}"
                )
        self.started += 1
        self._running[task_id][process] = member_id
        if counts:
            self._owner[task_id] = process
            # Others may have committed what one that does not count has not restored.
            self._check_stores(process, task, "begins to process")

    def restores(self, process: Process, places: Iterable[TopicPartition]) -> None:
        """A task is to be active, and begins to read its changelogs to their ends."""
        for place in places:
            log = self._cluster.logs.get(place)
            self._ends[process, place] = 0 if log is None else log.end

    def processes(self, process: Process, task: StreamTask, count: int) -> None:
        """A task has processed some records."""
        self.processed[task.task_id] += count
        self._uncommitted[process][task.task_id] += count

    def begins_commit(self, process: Process, task: StreamTask) -> None:
        """A task's offsets are on their way."""
        done = self._uncommitted[process][task.task_id] - _pending(task)
        self._committing[process][task.task_id] = done

    def has_committed(self, process: Process, task: StreamTask) -> None:
        """A task was committed, which may have processed more meanwhile."""
        self._uncommitted[process][task.task_id] -= self._committing[process].pop(task.task_id)

    def stops(self, process: Process, task: StreamTask, *, clean: bool) -> None:
        """A task does not process any more."""
        self._running[task.task_id].pop(process, None)
        uncommitted = self._uncommitted[process].pop(task.task_id, 0)
        # What is in flight may be given up, and is done again.
        if clean and uncommitted > _pending(task):
            raise ViolationError(f"task {task.task_id} is given up with {uncommitted} to commit")
        self.allowed[task.task_id] += uncommitted

    def closes(self, process: Process, task: StreamTask, *, clean: bool) -> None:
        """A task is given up."""
        self.stops(process, task, clean=clean)
        self._open[process].pop(task.task_id, None)

    def killed(self, process: Process) -> None:
        """A process is no more."""
        for task_id, count in self._uncommitted.pop(process, Counter()).items():
            self.allowed[task_id] += count
        self._open.pop(process, None)
        for running in self._running.values():
            running.pop(process, None)

    # --- stores --------------------------------------------------------------------------------

    def _check_stores(self, process: Process, task: StreamTask, when: str) -> None:
        for place, restorer in task.stores.restorers().items():
            reached = -1 if restorer.reached is None else restorer.reached
            for entry in reversed(self._history[place]):
                if entry.offset <= reached:
                    break
                if entry.offset < self._ends.get((process, place), 0):
                    raise ViolationError(
                        f"task {task.task_id} {when} at offset {reached} of {place}, but that had "
                        f"{entry.offset} when it began to restore"
                    )
                # Somebody wrote it who has no part in this task any more.
                self._overwrite(place.topic, entry)
            self._compare(task, place, reached, when)

    def _compare(self, task: StreamTask, place: TopicPartition, reached: int, when: str) -> None:
        told = {
            entry.key: entry.value
            for entry in self._history[place]
            if entry.offset <= reached and entry.key is not None
        }
        expected = {
            _readable(place.topic, key): ids_in(place.topic, value)
            for key, value in told.items()
            if (place.topic, key) not in self.overwritten
        }
        spoilt = {_readable(t, key) for t, key in self.overwritten if t == place.topic}
        if task.state is not TaskState.RUNNING:
            # What it has not come to yet may have taken the place of what was before it.
            later = (e.key for e in self._history[place] if e.offset > reached)
            spoilt |= {_readable(place.topic, key) for key in later if key is not None}
            expected = {key: ids for key, ids in expected.items() if key not in spoilt}
        found = {key: ids for key, ids in _content(task, place.topic).items() if key not in spoilt}
        if found != expected:
            differing = sorted(
                key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)
            )
            key = differing[0]
            raise ViolationError(
                f"task {task.task_id} {when} at offset {reached} of {place}, but for {key} its "
                f"store has {found.get(key)}, and the changelog {expected.get(key)}"
            )
        if task.state is TaskState.RUNNING:
            self._check_committed(task, place, found, spoilt, when)

    def _check_committed(
        self,
        task: StreamTask,
        place: TopicPartition,
        found: Mapping[str, list[int]],
        spoilt: set[str],
        when: str,
    ) -> None:
        """Whatever is committed of the task's input is in its store."""
        source = TopicPartition(_READS[task.task_id.subtopology], place.partition)
        committed = self._cluster.group.offsets.get(source)
        if committed is None or place.topic == WINDOWED:
            return
        name = key_of if place.topic == SEEN else group_of
        present = {key: set(ids) for key, ids in found.items()}
        for offset, record_id in self._brought[source]:
            key = name(record_id)
            if offset >= committed.offset or key in spoilt or record_id in present.get(key, ()):
                continue
            raise ViolationError(
                f"task {task.task_id} {when} without {record_id}, though offset "
                f"{committed.offset} of {source} is committed"
            )

    # --- the end -------------------------------------------------------------------------------

    def unassigned(self, partitions: int) -> list[TaskId]:
        """The tasks that not exactly one living process works on."""
        tasks = [TaskId(part, number) for part in (0, 1) for number in range(partitions)]
        return [
            task_id
            for task_id in tasks
            if sum(process.alive for process in self._running[task_id]) != 1
        ]

    def behind(self) -> bool:
        """Whether some copy has not read all of its changelogs."""
        for tasks in self._open.values():
            for task in tasks.values():
                if task.state is TaskState.RUNNING:
                    # Of a record whose acknowledgement was lost it does not know the offset.
                    continue
                for place, restorer in task.stores.restorers().items():
                    history = self._history[place]
                    last = history[-1].offset if history else -1
                    if (-1 if restorer.reached is None else restorer.reached) < last:
                        return True
        return False

    def at_end(self) -> tuple[int, int]:
        """Everything is settled: how many records were processed again, and how many results are
        missing ids because of a process that wrote though it had lost the task."""
        for tasks in list(self._open.values()):
            for task in tasks.values():
                for place, restorer in task.stores.restorers().items():
                    reached = -1 if restorer.reached is None else restorer.reached
                    if task.state is TaskState.RUNNING:
                        reached = self._cluster.logs[place].end
                    self._compare(task, place, reached, "has settled")
        missing = self._missing_at_end()
        repeated = 0
        for task_id, count in self.processed.items():
            source = TopicPartition(_READS[task_id.subtopology], task_id.partition)
            more = count - len(self._brought[source])
            if more > self.allowed[task_id]:
                raise ViolationError(
                    f"task {task_id} processed {more} records again, but no more than "
                    f"{self.allowed[task_id]} were not committed when they were lost"
                )
            repeated += more
        return repeated, missing

    def _missing_at_end(self) -> int:
        everything = self._written[INPUT]
        for topics in self.caused.values():
            for topic in topics:
                lost = everything - self._written[topic]
                if lost:
                    raise ViolationError(f"{sorted(lost)[:5]} are not in {topic}")
        missing = 0
        if SEEN not in self.caused[INPUT]:
            # There are no lists.
            return missing
        for topic, name in ((SEEN, key_of), (FOLDED, group_of), (OUTPUT, group_of)):
            last: dict[bytes, set[int]] = {}
            for place, history in sorted(self._history.items()):
                if place.topic == topic:
                    last.update((e.key or b"", set(ids_in(topic, e.value))) for e in history)
            for record_id in everything:
                key = name(record_id).encode()
                if record_id not in last.get(key, ()):
                    # What is put out is made from the store.
                    spoilt = {(topic, key), (FOLDED if topic == OUTPUT else topic, key)}
                    if not spoilt & self.overwritten:
                        raise ViolationError(f"{record_id} is not in the last {topic} of {key!r}")
                    missing += 1
        return missing


def entries_from(entries: list[Entry], first: int) -> list[Entry]:
    found = []
    for entry in reversed(entries):
        if entry.offset < first:
            break
        found.append(entry)
    return found[::-1]


def _pending(task: StreamTask) -> int:
    """How many records a task has taken that no commit can cover yet."""
    if task.state is not TaskState.RUNNING:
        return 0
    return sum(queue.pending.size for queue in task.processing.group.queues.values())


def _offset(entry: Entry) -> int:
    return entry.offset


def _readable(topic: str, key: bytes) -> str:
    """The key of a store's entry, from the key in its changelog."""
    if topic != WINDOWED:
        return key.decode()
    # Kafka Streams puts the window's start and a sequence number behind the key.
    return f"{key[:-12].decode()}@{int.from_bytes(key[-12:-4], 'big')}"


def _content(task: StreamTask, topic: str) -> dict[str, list[int]]:
    """What a store holds."""
    name = _STORES[topic]
    store: Any = task.stores.store(name)
    found = {}
    with store.all() as items:
        for key, value in items:
            if topic == WINDOWED:
                key = f"{key.key}@{key.window.start_ms}"
            found[key] = list(getattr(value, "value", value))
    return found
