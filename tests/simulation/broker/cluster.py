"""The simulated cluster: brokers that stop and restart, topics, and partition leaders."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from millstream.record import TopicPartition
from simulation.broker.group import GroupCoordinator
from simulation.broker.log import PartitionLog
from simulation.broker.transactions import TransactionCoordinator
from simulation.scheduler import Process, Scheduler

#: The time after which other brokers take over the partitions and groups of a stopped one.
_FAILOVER_US: Final = 3_000_000
OFFSETS_TOPIC: Final = "__consumer_offsets"


@dataclass(eq=False)
class Network:
    """The network faults that are in effect.

    Args:
        loss: the probability that a message is lost, together with its connection.
        delay: the probability that a message is delayed.
        max_delay_us: the maximum delay.
    """

    loss: float = 0.0
    delay: float = 0.0
    max_delay_us: int = 0


class Cluster:
    """Brokers 0 to `brokers` - 1.

    Args:
        scheduler: the simulation's scheduler.
        brokers: the number of brokers.
    """

    def __init__(self, scheduler: Scheduler, brokers: int = 3) -> None:
        self.scheduler = scheduler
        self.brokers = brokers
        self.network = Network()
        #: The duration of a pause of the process that commits next; set by a fault.
        self.freeze_next_commit_us = 0
        self.up = dict.fromkeys(range(brokers), True)
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.topics: dict[str, int] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._coordinator = 0
        #: The end of a pause of the coordinators of the group and of transactions.
        self._coordinators_silent_until_us = 0
        self._waiting_requests: list[Callable[[], None]] = []
        self.group = GroupCoordinator(
            scheduler, lambda: self.up[self._coordinator] and not self.coordinators_silent_us
        )
        self.transactions = TransactionCoordinator(self)
        #: Called when a broker stops, so that its connections break.
        self.on_stop: list[Callable[[int], None]] = []
        #: Called with the partition and the first offset of appended records.
        self.on_append: list[Callable[[TopicPartition, int, Process | None], None]] = []
        self.on_rejection: list[Callable[[str, bytes | None], None]] = []

    # --- topics --------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic unless it exists."""
        if name in self.topics:
            return
        self.topics[name] = partitions
        for number in range(partitions):
            place = TopicPartition(name, number)
            self.logs[place] = PartitionLog(config.get("cleanup.policy", "delete"))
            # hash() differs between runs.
            self._leaders[place] = zlib.crc32(f"{name}-{number}".encode()) % self.brokers
        self.scheduler.log(f"topic {name} with {partitions} partitions")

    def leader(self, place: TopicPartition) -> int:
        """The broker that leads a partition, even if it is down."""
        return self._leaders[place]

    def is_led(self, place: TopicPartition) -> bool:
        """Whether the leader of a partition is up."""
        return self.up[self._leaders[place]]

    def appended(self, place: TopicPartition, first: int, process: Process | None) -> None:
        """Report appended records to the checks."""
        for call in self.on_append:
            call(place, first, process)

    def rejected(self, topic: str, value: bytes | None) -> None:
        """Report a record that a producer rejected to the checks."""
        for call in self.on_rejection:
            call(topic, value)

    # --- brokers -------------------------------------------------------------------------------

    @property
    def coordinator(self) -> int:
        """The broker that coordinates the group, even if it is down."""
        return self._coordinator

    @property
    def group_is_up(self) -> bool:
        """Whether the broker that coordinates the group is up."""
        return self.up[self._coordinator]

    def stop(self, broker: int) -> None:
        """Stop a broker. After a while, others take over its partitions."""
        if not self.up[broker]:
            return
        self.up[broker] = False
        self.scheduler.log(f"broker {broker} stops")
        for call in list(self.on_stop):
            call(broker)
        self.scheduler.call_after(_FAILOVER_US, lambda: self._fail_over(broker))

    def restart(self, broker: int) -> None:
        """Restart a broker."""
        if not self.up[broker]:
            self.up[broker] = True
            self.scheduler.log(f"broker {broker} is back")
            if broker == self._coordinator:
                self.group.load()

    def _fail_over(self, broker: int) -> None:
        others = [other for other, up in self.up.items() if up]
        if self.up[broker] or not others:
            return
        for index, (place, leader) in enumerate(sorted(self._leaders.items())):
            if leader == broker:
                self._leaders[place] = others[index % len(others)]
                self.logs[place].new_leader()
        self.scheduler.log(f"others lead the partitions of broker {broker}")
        if self._coordinator == broker:
            self._coordinator = others[0]
            self.group.load()
            self.scheduler.log(f"broker {others[0]} coordinates the group")

    def silence_coordinators(self, us: int) -> None:
        """Pause the coordinators, like a paused broker: connections stay open, and requests that
        arrive in the meantime are served at the end, in their order."""
        until_us = self.scheduler.now_us + us
        self._coordinators_silent_until_us = until_us
        self.scheduler.log(f"the coordinators are silent for {us // 1000} ms")

        def resume() -> None:
            if until_us == self._coordinators_silent_until_us:
                self._coordinators_silent_until_us = 0
                self.scheduler.log("the coordinators answer again")
                self.group.resumed()
                waiting, self._waiting_requests = self._waiting_requests, []
                for serve in waiting:
                    serve()

        self.scheduler.call_after(us, resume)

    def serve_later(self, serve: Callable[[], None]) -> None:
        """Queue a request until the coordinators answer again."""
        self._waiting_requests.append(serve)

    def end_silence(self) -> None:
        """End the pause of the coordinators."""
        if self.coordinators_silent_us:
            self.silence_coordinators(0)

    @property
    def coordinators_silent_us(self) -> int:
        """The remaining pause of the coordinators; 0 if they are not paused."""
        return max(0, self._coordinators_silent_until_us - self.scheduler.now_us)

    # --- network -------------------------------------------------------------------------------

    def reaches(self, process: Process | None, broker: int) -> bool:
        """Whether a process and a broker are connected."""
        return self.up[broker] and not (process is not None and process.cut_off)

    def any_reached(self, process: Process | None) -> bool:
        """Whether a process is connected to any broker."""
        return any(self.reaches(process, broker) for broker in self.up)

    def latency_us(self) -> int:
        """Choose the latency of a message."""
        rng = self.scheduler.random
        network = self.network
        if network.delay and rng.random() < network.delay:
            return rng.randrange(1_000, network.max_delay_us)
        return rng.randrange(100, 1_200)

    def drops_message(self) -> bool:
        """Choose whether a message is lost."""
        return bool(self.network.loss) and self.scheduler.random.random() < self.network.loss
