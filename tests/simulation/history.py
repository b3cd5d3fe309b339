"""One history: a cluster, instances, records and faults, all decided by a seed."""

from __future__ import annotations

import gc
import os
import random
import re
import shutil
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import orjson

from millstream.errors import ProductionError, StreamsError
from millstream.kafka.partitioner import partition_for
from millstream.record import TopicPartition
from millstream.runtime.control import ChangeProperties
from millstream.state.storage.write_check import CHECK_WRITES
from simulation.application import INPUT, OUTPUT, REPARTITION, WINDOWS, Asking, Shape, key_of
from simulation.broker.cluster import Cluster
from simulation.broker.group import State
from simulation.checks import Checks, ViolationError
from simulation.clients.event_loop import tell_time
from simulation.disks import DiskFaults
from simulation.faults import Faults
from simulation.instance import Instance, Worker
from simulation.scheduler import EPOCH_MS, Process, Scheduler
from simulation.subscribed import CAUSED, SubscribedShape, chosen_properties
from simulation.transactional_checks import TransactionalChecks
from simulation.watching import OpenFiles, watched

#: What errors tell of the machine: who holds a lock since when.
_OUTSIDE: Final = re.compile(r"locked by process \d+ since [-\d: ]+ UTC")
_LAST_LINES: Final = 80
_MOST_INSTANCES: Final = 4
#: How many of the histories ask beside their loops.
_ASKS: Final = 0.3
#: How many are those of a subscription, and how often its properties change.
_SUBSCRIBES: Final = 0.15
_CHANGES: Final = 0.2
#: How often the coordinators are silent.
_SILENCES: Final = (0, 0, 1, 2)
#: How many have stores in RocksDB of which few writes may wait for a commit, and how many bytes.
_LIMITED: Final = 0.15
_LIMITS: Final = (0, 200, 2_000)
_READ: Final = (INPUT, REPARTITION)
_LOOK_US: Final = 250_000
_SETTLES_US: Final = 240_000_000
_CLOSES_US: Final = 60_000_000

#: Every thread verifies that no write is on disk before everything that it caused is delivered.
os.environ[CHECK_WRITES] = "1"


def state_root() -> str:
    """Where state goes: into memory, where that is a folder."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir()


@dataclass
class Result:
    """What one history was like."""

    seed: int
    records: int = 0
    rebalances: int = 0
    commits: int = 0
    repeated: int = 0
    overwritten: int = 0
    crashes: int = 0
    settle_ms: int = 0
    simulated_ms: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    trace_hash: int = 0
    trace: list[str] = field(default_factory=list)
    failure: str | None = None


@contextmanager
def _nobody_wakes_the_dead() -> Iterator[None]:
    """Let nothing be collected meanwhile: coroutines of killed processes would run their last lines
    then, in the name of whoever has a turn, and whenever the interpreter likes."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class History:
    """One run.

    Args:
        seed: decides everything.
        keep_trace: whether to keep every line of the story.
        exactly_once: the processing guarantee.
    """

    def __init__(self, seed: int, *, keep_trace: bool = False, exactly_once: bool = False) -> None:
        self.result = Result(seed)
        self._keep = keep_trace
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._chance = random.Random(f"plan {seed}")
        self.scheduler = Scheduler(seed, self._note)
        self.cluster = Cluster(self.scheduler)
        self.shape = Shape.chosen(self._chance, exactly_once=exactly_once)
        # Chances of their own: what a seed does beside this stays as it was.
        limits = random.Random(f"limits {seed}")
        if limits.random() < _LIMITED:
            limit = limits.choice(_LIMITS)
            self.shape = replace(self.shape, on_disk=True, uncommitted_max_bytes=limit)
        self._asks = asks = random.Random(f"asking {seed}")
        kind = asks.random()
        if kind < _ASKS:
            self.shape = replace(self.shape, asking=Asking.chosen(asks))
        elif kind > 1 - _SUBSCRIBES and not exactly_once:
            self.shape = SubscribedShape.of(self.shape, asks)
        self._silences = random.Random(f"silences {seed}")
        #: On how many hosts instances run.
        self._hosts = random.Random(f"hosts {seed}")
        self.instances: list[Instance] = []
        self._records = self._chance.randrange(80, 220)
        self._next_id = 0
        make_checks = TransactionalChecks if exactly_once else Checks
        self.checks = make_checks(self.cluster)
        self.checks.member_of = self._member_of
        if isinstance(self.shape, SubscribedShape):
            self.checks.line_of, self.checks.caused = self.shape.line_of, CAUSED
        elif self.shape.asking is not None:
            self.checks.line_of = self.shape.asking.line_of
        self.disk_faults = DiskFaults(self.scheduler)
        self.files = OpenFiles(self.scheduler)
        self.scheduler.on_end = self._process_ended
        self._root = ""
        self.faults = Faults(
            self.cluster,
            self.checks,
            self.disk_faults,
            self._chance,
            self._silences,
            self.instances,
            self._add_instance,
        )

    def _note(self, line: str) -> None:
        if self._root:
            line = _OUTSIDE.sub("locked", line.replace(self._root, "~"))
        self.result.trace_hash = zlib.crc32(line.encode(), self.result.trace_hash)
        self._last.append(line)
        if self._keep:
            self.result.trace.append(line)

    def run(self) -> Result:
        """Run it to its end; what failed is in the result."""
        with _nobody_wakes_the_dead():
            return self._run()

    def _run(self) -> Result:
        tell_time(self.scheduler)
        root = tempfile.mkdtemp(prefix="simulation-", dir=state_root())
        try:
            self._root = root
            with watched(self.scheduler, self.checks, self.files):
                try:
                    self._play()
                finally:
                    self._end()
        except (AssertionError, Exception) as error:
            self.result.failure = f"{type(error).__name__}: {error}\n" + "\n".join(self._last)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        self.result.simulated_ms = self.scheduler.now_us // 1000
        self.result.rebalances = self.cluster.group.rebalances
        self.result.records = self._next_id
        self.result.commits = self.checks.commits
        self.result.faults = dict(self.faults.counts)
        self.result.crashes = self.faults.crashes
        return self.result

    def _play(self) -> None:
        self.scheduler.tell(f"seed {self.result.seed}: {self.shape}")
        topics = (INPUT, OUTPUT, WINDOWS)
        if isinstance(self.shape, SubscribedShape):
            topics = (INPUT, REPARTITION, OUTPUT)
        for topic in topics:
            self.cluster.create_topic(topic, self.shape.partitions, {})
        for _ in range(2):
            self._add_instance()
        plan = self._plan()
        self._feed(plan)
        self.faults.heal()
        self._settle()
        self.result.repeated, self.result.overwritten = self.checks.at_end()
        for instance in self.instances:
            instance.close()
        self._until(
            lambda: all(instance.closed for instance in self.instances), _CLOSES_US, "close"
        )

    def _plan(self) -> list[tuple[int, str]]:
        """When which faults happen, by the number of records that were written by then."""
        count = self._chance.choice((0, 1, 2, 3, 4, 6))
        kinds = self._chance.choices(self.faults.kinds, k=count)
        plan = [(self._chance.randrange(self._records), kind) for kind in kinds]
        silences = self._silences.choice(_SILENCES)
        plan += [(self._silences.randrange(self._records), "coordinator") for _ in range(silences)]
        return sorted(plan)

    def _settle(self) -> None:
        settling_us = self.scheduler.now_us
        self._until(self.settled, _SETTLES_US + self._waiting_us(), "settle")
        self.result.settle_ms = (self.scheduler.now_us - settling_us) // 1000
        # Of the last commit, its members have heard by then.
        self.wait(4 * _LOOK_US)
        self.scheduler.tell("settled")

    def _waiting_us(self) -> int:
        """How long a subscription waits for its commits in all: it takes no more records than may
        be pending before the next one."""
        if not isinstance(self.shape, SubscribedShape):
            return 0
        properties = self.shape.properties
        longest = max(log.end for place, log in self.cluster.logs.items() if place.topic in _READ)
        return longest * properties.commit_interval_ms * 1000 // properties.max_pending_records

    def _until(self, holds: Callable[[], bool], within_us: int, what: str) -> None:
        began_us = self.scheduler.now_us
        while not holds():
            if self.scheduler.now_us - began_us > within_us:
                raise ViolationError(f"does not {what}: {self._where_it_is()}")
            self.wait(_LOOK_US)

    def _where_it_is(self) -> str:
        group = self.cluster.group
        ends = {str(p): log.end for p, log in self.cluster.logs.items() if p.topic in _READ}
        offsets = {str(place): known.offset for place, known in group.offsets.items()}
        states = {
            worker.process.name: worker.thread.state.name
            for instance in self.instances
            for worker in instance.living
            if worker.thread is not None
        }
        unassigned = [str(task) for task in self.checks.unassigned(self.shape.partitions)]
        return f"{group.state}, ends {ends}, committed {offsets}, {states}, idle {unassigned}"

    def _add_instance(self) -> bool:
        if len(self.instances) >= _MOST_INSTANCES:
            return False
        name = "abcd"[len(self.instances)]
        instance = Instance(
            self.cluster,
            self.disk_faults,
            name,
            self.shape,
            f"{self._root}/{name}",
            2,
            self._hosts.choice((1, 2)),
            self._thread_failed,
            self._thread_ended,
        )
        self.instances.append(instance)
        instance.start()
        return True

    def _member_of(self, process: Process) -> str:
        for instance in self.instances:
            for worker in instance.workers.values():
                if worker.process is process and worker.clients is not None:
                    member = worker.clients.joined
                    return "" if member is None else member.member_id
        return ""

    def wait(self, delay_us: int) -> None:
        """Let the world go on for a while."""
        self.scheduler.sleep(delay_us)
        if self.scheduler.failure is not None:
            raise self.scheduler.failure

    def _feed(self, plan: list[tuple[int, str]]) -> None:
        """Somebody writes input, and meanwhile faults happen."""
        while self._next_id < self._records:
            while plan and plan[0][0] <= self._next_id:
                self.faults.make(plan.pop(0)[1])
            for _ in range(self._chance.randrange(1, 20)):
                key = key_of(self._next_id).encode()
                place = TopicPartition(INPUT, partition_for(key, self.shape.partitions))
                self.checks.fed(self._next_id, place.partition)
                log = self.cluster.logs[place]
                timestamp = EPOCH_MS + self.scheduler.now_us // 1000
                first = log.append([(key, orjson.dumps(self._next_id), timestamp, None)])
                self.cluster.appended(place, first, None)
                self._next_id += 1
            self._change_properties()
            self.wait(self._chance.randrange(10_000, 2_000_000))

    def _change_properties(self) -> None:
        """Of a subscription, while it works."""
        if not isinstance(self.shape, SubscribedShape) or self._asks.random() > _CHANGES:
            return
        properties = chosen_properties(self._asks)
        self.scheduler.tell(f"--- {properties}")
        for instance in self.instances:
            for worker in instance.living:
                worker.driver.ask(ChangeProperties(properties.as_given()))

    def settled(self) -> bool:
        """Whether everything was processed and committed, by somebody who lives."""
        if not any(instance.wanted for instance in self.instances) and self.instances[0].closed:
            # The last one was closed when the faults ended.
            self.instances[0].start()
        if self.cluster.group.state is not State.STABLE:
            return False
        for topic in (INPUT, REPARTITION):
            for number in range(self.cluster.topics.get(topic, 0)):
                place = TopicPartition(topic, number)
                end = self.cluster.logs[place].end
                known = self.cluster.group.offsets.get(place)
                if end and (known is None or known.offset < end):
                    return False
        return not self.checks.unassigned(self.shape.partitions) and not self.checks.behind()

    def _thread_failed(self, worker: Worker, error: StreamsError) -> None:
        self.checks.killed(worker.process)
        if isinstance(error, ProductionError):
            self.checks.in_order = False
        if not self.faults.explains(error):
            raise ViolationError(
                f"{worker.process.name} ended without a reason: {error!r}"
            ) from error

    def _thread_ended(self, worker: Worker) -> None:
        left = self.files.of(worker.process)
        if left:
            raise ViolationError(f"{worker.process.name} ended and has {left} open")

    def _process_ended(self, process: Process) -> None:
        for instance in self.instances:
            for worker in instance.workers.values():
                if worker.process is process:
                    worker.storages.close_all()
        self.files.close(process)

    def _end(self) -> None:
        """Kill whatever is left, so that no thread of this history lives on."""
        for instance in self.instances:
            instance.wanted = False
            for worker in instance.living:
                self.scheduler.kill(worker.process)
        self.scheduler.failure = None
        for _ in range(100):
            if all(actor.done for actor in self.scheduler.actors):
                return
            self.scheduler.sleep(1_000)
