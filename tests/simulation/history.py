"""One history: a cluster, instances, records and faults, all determined by a seed."""

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
from millstream.runtime.thread_control import ChangeProperties
from millstream.state.storage.write_check import CHECK_WRITES
from simulation.application import INPUT, OUTPUT, REPARTITION, WINDOWS, AsyncCallPlan, Shape, key_of
from simulation.broker.cluster import Cluster
from simulation.broker.group import State
from simulation.checks import Checks, ViolationError
from simulation.clients.event_loop import use_simulated_time
from simulation.disks import DiskFaults
from simulation.faults import Faults
from simulation.instance import Instance, Worker
from simulation.scheduler import EPOCH_MS, Process, Scheduler
from simulation.subscribed import CAUSED, SubscribedShape, chosen_properties
from simulation.transactional_checks import TransactionalChecks
from simulation.watching import OpenFiles, watched

#: The parts of error messages that depend on the machine.
_MACHINE_SPECIFIC: Final = re.compile(r"locked by process \d+ since [-\d: ]+ UTC")
_KEPT_LINES: Final = 80
_MAX_INSTANCES: Final = 4
#: The share of histories with concurrent calls.
_ASYNC_SHARE: Final = 0.3
#: The share of histories with a subscription, and the probability of a change of its properties.
_SUBSCRIPTION_SHARE: Final = 0.15
_CHANGE_PROBABILITY: Final = 0.2
#: The possible numbers of pauses of the coordinators.
_SILENCES: Final = (0, 0, 1, 2)
#: The share of histories with a small limit of uncommitted bytes in RocksDB, and the limits.
_LIMITED_SHARE: Final = 0.15
_LIMITS: Final = (0, 200, 2_000)
_INPUTS: Final = (INPUT, REPARTITION)
_CHECK_INTERVAL_US: Final = 250_000
_SETTLE_TIMEOUT_US: Final = 240_000_000
_CLOSE_TIMEOUT_US: Final = 60_000_000

#: Every thread verifies that no write reaches the disk before its results are delivered.
os.environ[CHECK_WRITES] = "1"


def state_root() -> str:
    """The folder for state: in memory if the system has such a folder."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir()


@dataclass
class Result:
    """The outcome of one history."""

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
def _without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector: it closes coroutines of killed processes at arbitrary times,
    and their `finally` blocks would run in the current actor."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class History:
    """One run of the simulation.

    Args:
        seed: determines the run.
        keep_trace: whether to keep every line of the trace.
        exactly_once: the processing guarantee.
    """

    def __init__(self, seed: int, *, keep_trace: bool = False, exactly_once: bool = False) -> None:
        self.result = Result(seed)
        self._keep_trace = keep_trace
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._rng = random.Random(f"plan {seed}")
        self.scheduler = Scheduler(seed, self._trace)
        self.cluster = Cluster(self.scheduler)
        self.shape = Shape.chosen(self._rng, exactly_once=exactly_once)
        # Separate generators, so that a new feature does not change the rest of a seed's history.
        limit_rng = random.Random(f"limits {seed}")
        if limit_rng.random() < _LIMITED_SHARE:
            limit = limit_rng.choice(_LIMITS)
            self.shape = replace(self.shape, on_disk=True, uncommitted_max_bytes=limit)
        self._async_rng = async_rng = random.Random(f"asking {seed}")
        kind = async_rng.random()
        if kind < _ASYNC_SHARE:
            self.shape = replace(self.shape, async_calls=AsyncCallPlan.chosen(async_rng))
        elif kind > 1 - _SUBSCRIPTION_SHARE and not exactly_once:
            self.shape = SubscribedShape.of(self.shape, async_rng)
        self._silence_rng = random.Random(f"silences {seed}")
        #: Chooses the number of hosts of an instance.
        self._host_rng = random.Random(f"hosts {seed}")
        self.instances: list[Instance] = []
        self._records = self._rng.randrange(80, 220)
        self._next_id = 0
        make_checks = TransactionalChecks if exactly_once else Checks
        self.checks = make_checks(self.cluster)
        self.checks.member_of = self._member_of
        if isinstance(self.shape, SubscribedShape):
            self.checks.order_key, self.checks.caused = self.shape.order_key, CAUSED
        elif self.shape.async_calls is not None:
            self.checks.order_key = self.shape.async_calls.order_key
        self.disk_faults = DiskFaults(self.scheduler)
        self.files = OpenFiles(self.scheduler)
        self.scheduler.on_end = self._process_ended
        self._root = ""
        self.faults = Faults(
            self.cluster,
            self.checks,
            self.disk_faults,
            self._rng,
            self._silence_rng,
            self.instances,
            self._add_instance,
        )

    def _trace(self, line: str) -> None:
        if self._root:
            line = _MACHINE_SPECIFIC.sub("locked", line.replace(self._root, "~"))
        self.result.trace_hash = zlib.crc32(line.encode(), self.result.trace_hash)
        self._last_lines.append(line)
        if self._keep_trace:
            self.result.trace.append(line)

    def run(self) -> Result:
        """Run the history to its end. The result contains the failure, if any."""
        with _without_garbage_collection():
            return self._run()

    def _run(self) -> Result:
        use_simulated_time(self.scheduler)
        root = tempfile.mkdtemp(prefix="simulation-", dir=state_root())
        try:
            self._root = root
            with watched(self.scheduler, self.checks, self.files):
                try:
                    self._play()
                finally:
                    self._end()
        except (AssertionError, Exception) as error:
            self.result.failure = f"{type(error).__name__}: {error}\n" + "\n".join(self._last_lines)
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
        self.scheduler.log(f"seed {self.result.seed}: {self.shape}")
        topics = (INPUT, OUTPUT, WINDOWS)
        if isinstance(self.shape, SubscribedShape):
            topics = (INPUT, REPARTITION, OUTPUT)
        for topic in topics:
            self.cluster.create_topic(topic, self.shape.partitions, {})
        for _ in range(2):
            self._add_instance()
        plan = self._plan()
        self._write_input(plan)
        self.faults.heal()
        self._settle()
        self.result.repeated, self.result.overwritten = self.checks.at_end()
        for instance in self.instances:
            instance.close()
        self._wait_until(
            lambda: all(instance.closed for instance in self.instances), _CLOSE_TIMEOUT_US, "close"
        )

    def _plan(self) -> list[tuple[int, str]]:
        """Faults, each after a number of written records."""
        count = self._rng.choice((0, 1, 2, 3, 4, 6))
        kinds = self._rng.choices(self.faults.kinds, k=count)
        plan = [(self._rng.randrange(self._records), kind) for kind in kinds]
        silences = self._silence_rng.choice(_SILENCES)
        plan += [
            (self._silence_rng.randrange(self._records), "coordinator") for _ in range(silences)
        ]
        return sorted(plan)

    def _settle(self) -> None:
        settling_us = self.scheduler.now_us
        self._wait_until(self.settled, _SETTLE_TIMEOUT_US + self._commit_wait_us(), "settle")
        self.result.settle_ms = (self.scheduler.now_us - settling_us) // 1000
        # By then, the members have received the answer to their last commit.
        self.wait(4 * _CHECK_INTERVAL_US)
        self.scheduler.log("settled")

    def _commit_wait_us(self) -> int:
        """The total time that a subscription waits for commits: between two commits, it takes at
        most the pending records that its properties allow."""
        if not isinstance(self.shape, SubscribedShape):
            return 0
        properties = self.shape.properties
        longest = max(log.end for place, log in self.cluster.logs.items() if place.topic in _INPUTS)
        return longest * properties.commit_interval_ms * 1000 // properties.max_pending_records

    def _wait_until(self, condition: Callable[[], bool], timeout_us: int, what: str) -> None:
        began_us = self.scheduler.now_us
        while not condition():
            if self.scheduler.now_us - began_us > timeout_us:
                raise ViolationError(f"did not {what} in time: {self._describe_progress()}")
            self.wait(_CHECK_INTERVAL_US)

    def _describe_progress(self) -> str:
        group = self.cluster.group
        ends = {str(p): log.end for p, log in self.cluster.logs.items() if p.topic in _INPUTS}
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
        if len(self.instances) >= _MAX_INSTANCES:
            return False
        name = "abcd"[len(self.instances)]
        instance = Instance(
            self.cluster,
            self.disk_faults,
            name,
            self.shape,
            f"{self._root}/{name}",
            2,
            self._host_rng.choice((1, 2)),
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
        """Run the simulation for a while."""
        self.scheduler.sleep(delay_us)
        if self.scheduler.failure is not None:
            raise self.scheduler.failure

    def _write_input(self, plan: list[tuple[int, str]]) -> None:
        """Write all input records, with faults in between."""
        while self._next_id < self._records:
            while plan and plan[0][0] <= self._next_id:
                self.faults.inject(plan.pop(0)[1])
            for _ in range(self._rng.randrange(1, 20)):
                key = key_of(self._next_id).encode()
                place = TopicPartition(INPUT, partition_for(key, self.shape.partitions))
                self.checks.input_written(self._next_id, place.partition)
                log = self.cluster.logs[place]
                timestamp = EPOCH_MS + self.scheduler.now_us // 1000
                first = log.append([(key, orjson.dumps(self._next_id), timestamp, None)])
                self.cluster.appended(place, first, None)
                self._next_id += 1
            self._change_properties()
            self.wait(self._rng.randrange(10_000, 2_000_000))

    def _change_properties(self) -> None:
        """Sometimes change the properties of a running subscription."""
        if (
            not isinstance(self.shape, SubscribedShape)
            or self._async_rng.random() > _CHANGE_PROBABILITY
        ):
            return
        properties = chosen_properties(self._async_rng)
        self.scheduler.log(f"--- {properties}")
        for instance in self.instances:
            for worker in instance.living:
                worker.driver.send(ChangeProperties(properties.as_given()))

    def settled(self) -> bool:
        """Whether all input is processed and committed, and every task has a running owner."""
        if not any(instance.should_run for instance in self.instances) and self.instances[0].closed:
            # The last instance was closed when the faults ended.
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
        self.checks.process_killed(worker.process)
        if isinstance(error, ProductionError):
            self.checks.in_order = False
        if not self.faults.explains(error):
            raise ViolationError(
                f"{worker.process.name} failed although no fault explains it: {error!r}"
            ) from error

    def _thread_ended(self, worker: Worker) -> None:
        left = self.files.of(worker.process)
        if left:
            raise ViolationError(f"{worker.process.name} ended with open files: {left}")

    def _process_ended(self, process: Process) -> None:
        for instance in self.instances:
            for worker in instance.workers.values():
                if worker.process is process:
                    worker.storages.close_all()
        self.files.close(process)

    def _end(self) -> None:
        """Kill the remaining processes, so that no thread outlives the history."""
        for instance in self.instances:
            instance.should_run = False
            for worker in instance.living:
                self.scheduler.kill(worker.process)
        self.scheduler.failure = None
        for _ in range(100):
            if all(actor.done for actor in self.scheduler.actors):
                return
            self.scheduler.sleep(1_000)
