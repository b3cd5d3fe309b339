"""One history: a cluster, instances, records and faults, all decided by a seed."""

from __future__ import annotations

import random
import shutil
import tempfile
import zlib
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from millstream.errors import StreamsError
from millstream.record import TopicPartition
from simulation.application import INPUT, OUTPUT, REPARTITION, WINDOWS, Shape, key_of
from simulation.broker.cluster import Cluster
from simulation.broker.group import State
from simulation.clients.event_loop import tell_time
from simulation.instance import Instance, Worker
from simulation.scheduler import EPOCH_MS, Scheduler
from millstream.kafka.partitioner import partition_for

_LAST_LINES: Final = 80
_LOOK_US: Final = 250_000
_SETTLES_US: Final = 240_000_000
_CLOSES_US: Final = 60_000_000


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
    settle_ms: int = 0
    simulated_ms: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    trace_hash: int = 0
    trace: list[str] = field(default_factory=list)
    failure: str | None = None


class History:
    """One run.

    Args:
        seed: decides everything.
        keep_trace: whether to keep every line of the story.
    """

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.result = Result(seed)
        self._keep = keep_trace
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._chance = random.Random(f"plan {seed}")
        self.scheduler = Scheduler(seed, self._note)
        self.cluster = Cluster(self.scheduler)
        self.shape = Shape.chosen(self._chance)
        self.instances: list[Instance] = []
        self._records = self._chance.randrange(100, 300)
        self._next_id = 0

    def _note(self, line: str) -> None:
        self.result.trace_hash = zlib.crc32(line.encode(), self.result.trace_hash)
        self._last.append(line)
        if self._keep:
            self.result.trace.append(line)

    def run(self) -> Result:
        """Run it to its end; what failed is in the result."""
        tell_time(self.scheduler)
        root = tempfile.mkdtemp(prefix="simulation-", dir=state_root())
        try:
            self._play(root)
        except (AssertionError, Exception) as error:
            self.result.failure = f"{type(error).__name__}: {error}\n" + "\n".join(self._last)
        finally:
            self._end()
            shutil.rmtree(root, ignore_errors=True)
        self.result.simulated_ms = self.scheduler.now_us // 1000
        self.result.rebalances = self.cluster.group.rebalances
        self.result.records = self._next_id
        return self.result

    def _play(self, root: str) -> None:
        self.scheduler.tell(f"seed {self.result.seed}: {self.shape}")
        for topic in (INPUT, OUTPUT, WINDOWS):
            self.cluster.create_topic(topic, self.shape.partitions, {})
        for name in "a":
            self.instances.append(
                Instance(self.cluster, name, self.shape, f"{root}/{name}", 1, self._thread_failed)
            )
        for instance in self.instances:
            instance.start()
        self._feed()
        settled_us = self.scheduler.now_us
        while not self.settled():
            assert self.scheduler.now_us - settled_us < _SETTLES_US, "does not settle"
            self.wait(_LOOK_US)
        self.result.settle_ms = (self.scheduler.now_us - settled_us) // 1000
        self.scheduler.tell("settled")
        for instance in self.instances:
            instance.close()
        closing_us = self.scheduler.now_us
        while not all(instance.closed for instance in self.instances):
            assert self.scheduler.now_us - closing_us < _CLOSES_US, "does not close"
            self.wait(_LOOK_US)

    def wait(self, delay_us: int) -> None:
        """Let the world go on for a while."""
        self.scheduler.sleep(delay_us)
        if self.scheduler.failure is not None:
            raise self.scheduler.failure

    def _feed(self) -> None:
        """Somebody writes input."""
        while self._next_id < self._records:
            for _ in range(self._chance.randrange(1, 20)):
                key = key_of(self._next_id).encode()
                place = TopicPartition(INPUT, partition_for(key, self.shape.partitions))
                log = self.cluster.logs[place]
                timestamp = EPOCH_MS + self.scheduler.now_us // 1000
                first = log.append([(key, orjson.dumps(self._next_id), timestamp, None)])
                self.cluster.appended(place, first, None)
                self._next_id += 1
            self.wait(self._chance.randrange(10_000, 2_000_000))

    def settled(self) -> bool:
        """Whether everything was processed and committed, by somebody who lives."""
        if self.cluster.group.state is not State.STABLE:
            return False
        for topic in (INPUT, REPARTITION):
            for number in range(self.cluster.topics.get(topic, 0)):
                place = TopicPartition(topic, number)
                end = self.cluster.logs[place].end
                known = self.cluster.group.offsets.get(place)
                if end and (known is None or known.offset < end):
                    return False
        return REPARTITION in self.cluster.topics

    def _thread_failed(self, worker: Worker, error: StreamsError) -> None:
        self.scheduler.tell(f"{worker.process.name} failed: {error}")

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
