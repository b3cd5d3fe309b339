"""The invariants of a history, while it runs and at its end.

- An offset is committed only after all results of its record are in the logs.
- In a generation, only one member commits a partition, and only one member runs a task.
- A task starts with the content of its changelogs up to its restored offset, and with all committed
  results.
- Only records that were not committed when their owner lost the task are processed again.
- Records of a partition keep their order; with concurrent calls, at least the order of each key.
- At the end, every id is in each topic on its way, and each store equals its changelog.

At-least-once has no fencing: requests in flight of a process that has lost its tasks are still
written, over the results of the new owner. The checks track these overwritten keys separately.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

from millstream.record import TaskId, TopicPartition
from millstream.runtime.states.thread_states import TaskState
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

#: The sub-topology that writes each topic.
_WRITER: Final = {SEEN: 0, FOLDED: 1, WINDOWED: 1, OUTPUT: 1}
_STORES: Final = {SEEN: "seen", FOLDED: "folded", WINDOWED: "windowed"}
_READS: Final = {0: INPUT, 1: REPARTITION}


class ViolationError(AssertionError):
    """An invariant does not hold."""


class Checks:
    """Checks the invariants of one history.

    Args:
        cluster: the history's cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._scheduler = cluster.scheduler
        #: Offset and id of each record in the input and repartition topics.
        self._received: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
        self._written: dict[str, set[int]] = defaultdict(set)
        self._checked_up_to: Counter[TopicPartition] = Counter()
        self._committers: dict[tuple[int, TopicPartition], str] = {}
        self._source_of: dict[int, int] = {}
        self._seen: dict[TopicPartition, set[int]] = defaultdict(set)
        self._first_seen: dict[tuple[TopicPartition, int, Hashable], int] = {}
        #: Rejected records; their order is not checked, since they are sent again later.
        self._rejected: set[int] = set()
        #: Every record of the changelogs and the output topic, including compacted ones.
        self._history: dict[TopicPartition, list[Entry]] = defaultdict(list)
        #: The processes that run each task, and the last one that started it.
        self._running: dict[TaskId, dict[Process, str]] = defaultdict(dict)
        self._owner: dict[TaskId, Process] = {}
        self._open: dict[Process, dict[TaskId, StreamTask]] = defaultdict(dict)
        #: The ends of changelogs when an active task started to restore.
        self._ends: dict[tuple[Process, TopicPartition], int] = {}
        self._uncommitted: dict[Process, Counter[TaskId]] = defaultdict(Counter)
        #: The number of records that the commit in progress covers.
        self._committing: dict[Process, dict[TaskId, int]] = defaultdict(dict)
        self.processed: Counter[TaskId] = Counter()
        self.allowed: Counter[TaskId] = Counter()
        self.commits = 0
        self.started = 0
        #: Keys that were written by a process after it had lost the task.
        self.overwritten: set[tuple[str, bytes]] = set()
        #: Whether records must keep their order; not after a failed batch.
        self.in_order = True
        #: The topics that must contain an id before the offset of its record is committed.
        self.caused: Mapping[str, Sequence[str]] = CAUSED
        #: The key within which the records of an input partition keep their order.
        self.order_key: Callable[[int], Hashable] = lambda record_id: None
        #: Returns the member id of a process.
        self.member_of: Callable[[Process], str] = lambda process: ""
        cluster.on_append.append(self.appended)
        cluster.on_rejection.append(self.rejected)
        cluster.group.on_commit.append(self.committed)

    def input_written(self, record_id: int, partition: int) -> None:
        """Note an input record that is about to be written."""
        self._source_of[record_id] = partition

    # --- logs ----------------------------------------------------------------------------------

    def appended(self, place: TopicPartition, first: int, process: Process | None) -> None:
        """Check appended records."""
        self.written(place, entries_from(self._cluster.logs[place].entries, first), process)

    def rejected(self, topic: str, value: bytes | None) -> None:
        """Note a record that the producer rejected."""
        self._rejected.update(ids_in(topic, value))

    def written(self, place: TopicPartition, entries: list[Entry], process: Process | None) -> None:
        """Check records that consumers can read now."""
        topic = place.topic
        writer = _WRITER.get(topic)
        zombie = writer is not None and self._is_zombie(TaskId(writer, place.partition), process)
        for entry in entries:
            ids = ids_in(topic, entry.value)
            self._written[topic].update(ids)
            if topic in _READS.values():
                for each in ids:
                    insort(self._received[place], (entry.offset, each))
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
            self._scheduler.log(
                f"{topic}: {entry.key!r} is written after its process lost the task"
            )

    def _check_order(self, place: TopicPartition, ids: list[int]) -> None:
        for each in ids:
            if each in self._rejected:
                continue
            line = (place, self._source_of[each], self.order_key(each))
            last = self._first_seen.get(line, -1)
            if each <= last:
                if self.in_order and each not in self._seen[place]:
                    raise ViolationError(f"{place}: {each} first appeared after {last}")
            else:
                self._first_seen[line] = each
            self._seen[place].add(each)

    def committed(
        self, generation: int, member_id: str, offsets: Mapping[TopicPartition, Committed]
    ) -> None:
        """Check a successful commit of the group."""
        self.commits += 1
        known_member = self._cluster.group.members.get(member_id)
        if known_member is not None and known_member.instance is not None:
            # A static member keeps its identity after a restart.
            member_id = known_member.instance
        for place, (offset, _, _) in offsets.items():
            known = self._committers.setdefault((generation, place), member_id)
            if known != member_id:
                raise ViolationError(
                    f"{place} is committed by {known} and {member_id} in generation {generation}"
                )
            if offset > self._cluster.logs[place].end:
                raise ViolationError(f"{place} ends before the committed offset {offset}")
            received = self._received[place]
            index = self._checked_up_to[place]
            while index < len(received) and received[index][0] < offset:
                record_id = received[index][1]
                for topic in self.caused[place.topic]:
                    if record_id not in self._written[topic]:
                        raise ViolationError(
                            f"offset {offset} of {place} is committed, but the earlier record "
                            f"{record_id} is not in {topic}"
                        )
                index += 1
            self._checked_up_to[place] = index

    # --- tasks ---------------------------------------------------------------------------------

    def task_opened(self, process: Process, task: StreamTask) -> None:
        """Note that a task has opened its stores."""
        self._open[process][task.task_id] = task

    def task_started(self, process: Process, task: StreamTask) -> None:
        """Check a restored task that starts to process."""
        task_id = task.task_id
        group = self._cluster.group
        member_id = self.member_of(process)
        # A process that was paused may not have noticed the rebalance.
        is_member = member_id in group.members
        for other, other_member_id in self._running[task_id].items():
            member = group.members.get(other_member_id)
            if other is process or not other.alive or member is None or member.instance is not None:
                continue
            if is_member:
                raise ViolationError(
                    f"{process.name} starts task {task_id}, which {other.name} still runs in "
                    f"generation {group.generation}"
                )
        self.started += 1
        self._running[task_id][process] = member_id
        if is_member:
            self._owner[task_id] = process
            # Without membership, others may have committed results that are not restored here.
            self._check_stores(process, task, "starts")

    def restore_started(self, process: Process, places: Iterable[TopicPartition]) -> None:
        """Note the ends of the changelogs that an active task starts to restore."""
        for place in places:
            log = self._cluster.logs.get(place)
            self._ends[process, place] = 0 if log is None else log.end

    def records_processed(self, process: Process, task: StreamTask, count: int) -> None:
        """Count records that a task has processed."""
        self.processed[task.task_id] += count
        self._uncommitted[process][task.task_id] += count

    def commit_started(self, process: Process, task: StreamTask) -> None:
        """Note the records that a starting commit covers."""
        done = self._uncommitted[process][task.task_id] - _pending(task)
        self._committing[process][task.task_id] = done

    def commit_finished(self, process: Process, task: StreamTask) -> None:
        """Note a finished commit. The task may have processed more records in the meantime."""
        self._uncommitted[process][task.task_id] -= self._committing[process].pop(task.task_id)

    def task_stopped(self, process: Process, task: StreamTask, *, clean: bool) -> None:
        """Note that a task has stopped processing."""
        self._running[task.task_id].pop(process, None)
        uncommitted = self._uncommitted[process].pop(task.task_id, 0)
        # Records in flight may be dropped; they are processed again.
        if clean and uncommitted > _pending(task):
            raise ViolationError(
                f"task {task.task_id} is closed with {uncommitted} uncommitted records"
            )
        self.allowed[task.task_id] += uncommitted

    def task_closed(self, process: Process, task: StreamTask, *, clean: bool) -> None:
        """Note that a task is closed."""
        self.task_stopped(process, task, clean=clean)
        self._open[process].pop(task.task_id, None)

    def process_killed(self, process: Process) -> None:
        """Drop the tasks of a killed process."""
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
                        f"task {task.task_id} {when} at offset {reached} of {place}, which already "
                        f"had {entry.offset} when the restoration started"
                    )
                # Written by a process that no longer owns this task.
                self._overwrite(place.topic, entry)
            self._compare(task, place, reached, when)

    def _compare(self, task: StreamTask, place: TopicPartition, reached: int, when: str) -> None:
        restored = {
            entry.key: entry.value
            for entry in self._history[place]
            if entry.offset <= reached and entry.key is not None
        }
        expected = {
            _readable(place.topic, key): ids_in(place.topic, value)
            for key, value in restored.items()
            if (place.topic, key) not in self.overwritten
        }
        ignored_keys = {_readable(t, key) for t, key in self.overwritten if t == place.topic}
        if task.state is not TaskState.RUNNING:
            # Later records may have replaced earlier ones in the compacted changelog.
            later = (e.key for e in self._history[place] if e.offset > reached)
            ignored_keys |= {_readable(place.topic, key) for key in later if key is not None}
            expected = {key: ids for key, ids in expected.items() if key not in ignored_keys}
        found = {
            key: ids for key, ids in _content(task, place.topic).items() if key not in ignored_keys
        }
        if found != expected:
            differing = sorted(
                key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)
            )
            key = differing[0]
            raise ViolationError(
                f"task {task.task_id} {when} at offset {reached} of {place}, but for {key} the "
                f"store has {found.get(key)}, and the changelog {expected.get(key)}"
            )
        if task.state is TaskState.RUNNING:
            self._check_committed(task, place, found, ignored_keys, when)

    def _check_committed(
        self,
        task: StreamTask,
        place: TopicPartition,
        found: Mapping[str, list[int]],
        ignored_keys: set[str],
        when: str,
    ) -> None:
        """Check that the store contains all committed input of the task."""
        source = TopicPartition(_READS[task.task_id.subtopology], place.partition)
        committed = self._cluster.group.offsets.get(source)
        if committed is None or place.topic == WINDOWED:
            return
        name = key_of if place.topic == SEEN else group_of
        present = {key: set(ids) for key, ids in found.items()}
        for offset, record_id in self._received[source]:
            key = name(record_id)
            if (
                offset >= committed.offset
                or key in ignored_keys
                or record_id in present.get(key, ())
            ):
                continue
            raise ViolationError(
                f"task {task.task_id} {when} without {record_id}, though offset "
                f"{committed.offset} of {source} is committed"
            )

    # --- the end -------------------------------------------------------------------------------

    def unassigned(self, partitions: int) -> list[TaskId]:
        """The tasks that do not run in exactly one live process."""
        tasks = [TaskId(part, number) for part in (0, 1) for number in range(partitions)]
        return [
            task_id
            for task_id in tasks
            if sum(process.alive for process in self._running[task_id]) != 1
        ]

    def behind(self) -> bool:
        """Whether any standby or restoring task has not read all of its changelogs."""
        for tasks in self._open.values():
            for task in tasks.values():
                if task.state is TaskState.RUNNING:
                    # Its offset may be unknown if an acknowledgment was lost.
                    continue
                for place, restorer in task.stores.restorers().items():
                    history = self._history[place]
                    last = history[-1].offset if history else -1
                    if (-1 if restorer.reached is None else restorer.reached) < last:
                        return True
        return False

    def at_end(self) -> tuple[int, int]:
        """Check the settled application. Return the number of reprocessed records, and of results
        that lack ids because a process wrote after it had lost the task."""
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
            more = count - len(self._received[source])
            if more > self.allowed[task_id]:
                raise ViolationError(
                    f"task {task_id} processed {more} records again, but at most "
                    f"{self.allowed[task_id]} were uncommitted when the task was lost"
                )
            repeated += more
        return repeated, missing

    def _missing_at_end(self) -> int:
        everything = self._written[INPUT]
        for topics in self.caused.values():
            for topic in topics:
                lost = everything - self._written[topic]
                if lost:
                    raise ViolationError(f"{topic} lacks {sorted(lost)[:5]}")
        missing = 0
        if SEEN not in self.caused[INPUT]:
            # Subscriptions have no lists of ids.
            return missing
        for topic, name in ((SEEN, key_of), (FOLDED, group_of), (OUTPUT, group_of)):
            last: dict[bytes, set[int]] = {}
            for place, history in sorted(self._history.items()):
                if place.topic == topic:
                    last.update((e.key or b"", set(ids_in(topic, e.value))) for e in history)
            for record_id in everything:
                key = name(record_id).encode()
                if record_id not in last.get(key, ()):
                    # The output is computed from the store.
                    ignored_keys = {(topic, key), (FOLDED if topic == OUTPUT else topic, key)}
                    if not ignored_keys & self.overwritten:
                        raise ViolationError(
                            f"{record_id} is not in the last value of {key!r} in {topic}"
                        )
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
    """The number of records of a task that no commit can cover yet."""
    if task.state is not TaskState.RUNNING:
        return 0
    return sum(queue.pending.size for queue in task.processing.group.queues.values())


def _offset(entry: Entry) -> int:
    return entry.offset


def _readable(topic: str, key: bytes) -> str:
    """Decode a changelog key."""
    if topic != WINDOWED:
        return key.decode()
    # Kafka Streams appends the window's start and a sequence number to the key.
    return f"{key[:-12].decode()}@{int.from_bytes(key[-12:-4], 'big')}"


def _content(task: StreamTask, topic: str) -> dict[str, list[int]]:
    """The ids in a store, by key."""
    name = _STORES[topic]
    store: Any = task.stores.store(name)
    found = {}
    with store.all() as items:
        for key, value in items:
            if topic == WINDOWED:
                key = f"{key.key}@{key.window.start_ms}"
            found[key] = list(getattr(value, "value", value))
    return found
