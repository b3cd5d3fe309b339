"""How what tasks have done becomes visible to everybody else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from millstream.clock import Deadline
from millstream.kafka.member.events import CommitOffset
from millstream.record import TopicPartition


class Confirmation(Protocol):
    """What the group answers to offsets that it was sent."""

    @property
    def is_there(self) -> bool:
        """Whether it need not be waited for."""
        ...

    def take(self, whole: Deadline) -> None:
        """See that the offsets are committed, and wait for it if need be.

        Args:
            whole: nothing is tried after it.

        Raises:
            RebalanceInProgressError: the group took none; commit again after the rebalance.
            TaskMigratedError: the member is not in the group any more.
            BrokerUnavailableError: no answer in time.
        """
        ...


class Publication(Protocol):
    """One of the processing guarantees, as far as the cluster is concerned.

    `AtLeastOnce` waits for what was sent and then commits offsets; `Transactions` does both at
    once.
    """

    @property
    def all_or_nothing(self) -> bool:
        """Whether what the tasks of a thread have sent is given up for all of them, or for none."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether something was sent that only a commit makes visible."""
        ...

    def is_ready(self) -> bool:
        """Whether tasks may begin; tries to make it so.

        Raises:
            BrokerUnavailableError: the cluster has not answered for too long.
        """
        ...

    def publish(self, offsets: Mapping[TopicPartition, CommitOffset], whole: Deadline) -> None:
        """Let everything that was sent, and then these offsets, be there for good.

        Args:
            offsets: where to go on after what was sent; may be empty.
            whole: nothing is tried after it.

        Raises:
            RebalanceInProgressError: the group takes no commits now; try again after it.
            TaskMigratedError: what was sent is lost: it has to be dropped, and done again.
            ProductionError: an output could not be written.
            BrokerUnavailableError: no answer in time.
        """
        ...

    def publish_soon(
        self, offsets: Mapping[TopicPartition, CommitOffset], whole: Deadline
    ) -> Confirmation | None:
        """The same, but records may go on, and stores be written, before the group has answered.

        Returns:
            The answer that is to come; None if nothing is waited for any more.

        Raises:
            StreamsError: as `publish`.
        """
        ...

    def settle(self, whole: Deadline) -> None:
        """Wait until what was sent is in its topics, though nothing is committed."""
        ...

    def forget_sent(self) -> None:
        """Give up what was sent since the last commit."""
        ...
