"""The simulated cluster: brokers that come and go, topics, and who leads which partition."""

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

#: How long a broker is away before others lead its partitions and groups.
_FAILOVER_US: Final = 3_000_000
OFFSETS_TOPIC: Final = "__consumer_offsets"


@dataclass(eq=False)
class Network:
    """What the network does to messages, as far as a fault says so.

    Args:
        loses: how likely a message is lost, and the connection with it.
        delays: how likely it is late.
        most_delay_us: how late at most.
    """

    loses: float = 0.0
    delays: float = 0.0
    most_delay_us: int = 0


class Cluster:
    """Brokers 0 to `brokers` - 1.

    Args:
        scheduler: the world.
        brokers: how many there are.
    """

    def __init__(self, scheduler: Scheduler, brokers: int = 3) -> None:
        self.scheduler = scheduler
        self.brokers = brokers
        self.network = Network()
        #: How long the process stands still that commits next; a fault's.
        self.freeze_next_commit_us = 0
        self.up = dict.fromkeys(range(brokers), True)
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.topics: dict[str, int] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._coordinator = 0
        #: Until then the coordinators of the group and of transactions answer nothing.
        self._coordinators_silent_until_us = 0
        self._waiting_requests: list[Callable[[], None]] = []
        self.group = GroupCoordinator(
            scheduler, lambda: self.up[self._coordinator] and not self.coordinators_silent_us
        )
        self.transactions = TransactionCoordinator(self)
        #: Called when a broker stopped, so that connections to it break.
        self.on_stop: list[Callable[[int], None]] = []
        #: Called with each partition and the offset of the first record that came.
        self.on_append: list[Callable[[TopicPartition, int, Process | None], None]] = []
        self.on_refusal: list[Callable[[str, bytes | None], None]] = []

    # --- topics --------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Make a topic, unless it is there."""
        if name in self.topics:
            return
        self.topics[name] = partitions
        for number in range(partitions):
            place = TopicPartition(name, number)
            self.logs[place] = PartitionLog(config.get("cleanup.policy", "delete"))
            # Not by hash(), which differs from run to run.
            self._leaders[place] = zlib.crc32(f"{name}-{number}".encode()) % self.brokers
        self.scheduler.tell(f"topic {name} with {partitions} partitions")

    def leader(self, place: TopicPartition) -> int:
        """The broker that leads a partition, up or not."""
        return self._leaders[place]

    def is_led(self, place: TopicPartition) -> bool:
        """Whether a partition has a leader that is up."""
        return self.up[self._leaders[place]]

    def appended(self, place: TopicPartition, first: int, process: Process | None) -> None:
        """Records were appended: let the checks see them."""
        for call in self.on_append:
            call(place, first, process)

    def refused(self, topic: str, value: bytes | None) -> None:
        """A producer has not taken a record: let the checks know."""
        for call in self.on_refusal:
            call(topic, value)

    # --- brokers -------------------------------------------------------------------------------

    @property
    def coordinator(self) -> int:
        """The broker that coordinates the group, up or not."""
        return self._coordinator

    @property
    def group_is_up(self) -> bool:
        """Whether the broker that coordinates the group is up."""
        return self.up[self._coordinator]

    def stop(self, broker: int) -> None:
        """Stop a broker. After a while others lead what it led."""
        if not self.up[broker]:
            return
        self.up[broker] = False
        self.scheduler.tell(f"broker {broker} stops")
        for call in list(self.on_stop):
            call(broker)
        self.scheduler.call_after(_FAILOVER_US, lambda: self._fail_over(broker))

    def restart(self, broker: int) -> None:
        """Start a broker again."""
        if not self.up[broker]:
            self.up[broker] = True
            self.scheduler.tell(f"broker {broker} is back")
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
        self.scheduler.tell(f"others lead what broker {broker} led")
        if self._coordinator == broker:
            self._coordinator = others[0]
            self.group.load()
            self.scheduler.tell(f"broker {others[0]} coordinates the group")

    def silence_coordinators(self, us: int) -> None:
        """Let the coordinators answer nothing for a while, as a paused broker does: connections
        stay, and requests that arrive meanwhile are served at the end, in their order."""
        until_us = self.scheduler.now_us + us
        self._coordinators_silent_until_us = until_us
        self.scheduler.tell(f"the coordinators are silent for {us // 1000} ms")

        def resume() -> None:
            if until_us == self._coordinators_silent_until_us:
                self._coordinators_silent_until_us = 0
                self.scheduler.tell("the coordinators answer again")
                self.group.resumed()
                waiting, self._waiting_requests = self._waiting_requests, []
                for serve in waiting:
                    serve()

        self.scheduler.call_after(us, resume)

    def serve_later(self, serve: Callable[[], None]) -> None:
        """Let a request wait until the coordinators answer again, behind those before it."""
        self._waiting_requests.append(serve)

    def end_silence(self) -> None:
        """Let the coordinators answer again at once."""
        if self.coordinators_silent_us:
            self.silence_coordinators(0)

    @property
    def coordinators_silent_us(self) -> int:
        """How much longer the coordinators answer nothing; 0 while they answer."""
        return max(0, self._coordinators_silent_until_us - self.scheduler.now_us)

    # --- reaching them -------------------------------------------------------------------------

    def reaches(self, process: Process | None, broker: int) -> bool:
        """Whether messages pass between a process and a broker."""
        return self.up[broker] and not (process is not None and process.cut_off)

    def any_reached(self, process: Process | None) -> bool:
        """Whether a process reaches any broker."""
        return any(self.reaches(process, broker) for broker in self.up)

    def latency_us(self) -> int:
        """How long a message takes now."""
        chance = self.scheduler.random
        network = self.network
        if network.delays and chance.random() < network.delays:
            return chance.randrange(1_000, network.most_delay_us)
        return chance.randrange(100, 1_200)

    def loses(self) -> bool:
        """Whether a message is lost."""
        return bool(self.network.loses) and self.scheduler.random.random() < self.network.loses
