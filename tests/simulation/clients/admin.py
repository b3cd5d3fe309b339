"""The admin client of the simulated cluster; behaves like `ClusterAdmin`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from millstream.errors import BrokerUnavailableError, IllegalStateError, TopologyError
from millstream.record import TopicPartition
from simulation.broker.cluster import OFFSETS_TOPIC, Cluster
from simulation.broker.log import LogError
from simulation.clients.requests import BrokerRequests
from simulation.scheduler import Process

_TIMEOUT_MS: Final = 30_000
_RETRY_US: Final = 100_000


class SimulatedAdmin:
    """Sends administrative requests to the cluster.

    Args:
        cluster: the cluster.
        process: the client's process.
    """

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self._requests = BrokerRequests(cluster, process)
        self._cluster = cluster
        self._closed = False

    def _check(self) -> None:
        if self._closed:
            raise IllegalStateError("The admin client is closed.")

    def partition_counts(
        self, topics: Iterable[str], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[str, int]:
        self._check()
        known, wanted = self._cluster.topics, sorted(topics)
        return self._requests.send(
            lambda: (),
            lambda: {topic: known[topic] for topic in wanted if topic in known},
            timeout_ms,
            "Describing topics",
        )

    def topic_ids(self, topics: Iterable[str], timeout_ms: int = _TIMEOUT_MS) -> dict[str, str]:
        return {topic: f"id of {topic}" for topic in self.partition_counts(topics, timeout_ms)}

    def replica_racks(
        self, topics: Iterable[str], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, frozenset[str]]:
        self.partition_counts(topics, timeout_ms)
        return {}

    def topics_matching(
        self, pattern: str | re.Pattern[str], timeout_ms: int = _TIMEOUT_MS
    ) -> list[str]:
        self._check()
        matches = re.compile(pattern).fullmatch
        return self._requests.send(
            lambda: (),
            lambda: sorted(
                name for name in self._cluster.topics if matches(name) and name != OFFSETS_TOPIC
            ),
            timeout_ms,
            "Listing topics",
        )

    def create_topics(
        self, topics: Iterable[tuple[str, int, Mapping[str, str]]], timeout_ms: int = _TIMEOUT_MS
    ) -> None:
        self._check()
        wanted = list(topics)

        def create() -> None:
            for name, partitions, config in wanted:
                self._cluster.create_topic(name, partitions, config)

        self._requests.send(lambda: (), create, timeout_ms, "Creating topics")
        for name, partitions, _ in wanted:
            if self._cluster.topics[name] != partitions:
                raise TopologyError(
                    f"The topic exists with {self._cluster.topics[name]} partitions, but "
                    f"{partitions} are needed.",
                    topic=name,
                )

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        self._check()
        places = list(partitions)
        return self._requests.send(
            lambda: self._requests.leaders(places, "Listing offsets"),
            lambda: {place: self._cluster.logs[place].end for place in places},
            timeout_ms,
            "Listing offsets",
        )

    def committed_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, int | None]:
        self._check()
        offsets, places = self._cluster.group.offsets, list(partitions)
        return self._requests.send(
            lambda: (self._cluster.coordinator,),
            lambda: {p: offsets[p].offset if p in offsets else None for p in places},
            timeout_ms,
            "Reading committed offsets",
        )

    def delete_records(
        self, before: Mapping[TopicPartition, int], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, Future[Any]]:
        self._check()
        futures: dict[TopicPartition, Future[Any]] = {place: Future() for place in before}
        until_us = self._requests.scheduler.now_us + timeout_ms * 1000
        for place, offset in before.items():
            self._delete(place, offset, futures[place], until_us)
        return futures

    def _delete(
        self, place: TopicPartition, offset: int, future: Future[Any], until_us: int
    ) -> None:
        cluster, scheduler = self._cluster, self._requests.scheduler
        process = self._requests.process

        def arrive() -> None:
            if cluster.reaches(process, cluster.leader(place)) and not cluster.drops_message():
                try:
                    start = cluster.logs[place].delete_before(offset)
                except LogError as error:
                    failure = ValueError(str(error))
                    scheduler.call_after(
                        cluster.latency_us(), lambda: future.set_exception(failure), process
                    )
                    return
                scheduler.log(f"{process.name}: {place} begins at {start}")
                scheduler.call_after(
                    cluster.latency_us(), lambda: future.set_result(start), process
                )
            elif scheduler.now_us > until_us:
                future.set_exception(BrokerUnavailableError("Deleting records failed."))
            else:
                scheduler.call_after(
                    _RETRY_US, lambda: self._delete(place, offset, future, until_us), process
                )

        scheduler.call_after(cluster.latency_us(), arrive, process)

    def close(self) -> None:
        self._closed = True
