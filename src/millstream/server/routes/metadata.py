"""What an instance knows of itself and of the others: threads, topology, who has what, lags."""

from __future__ import annotations

from typing import Any

from millstream.assignment.wire.assignment_info import HostInfo
from millstream.query.metadata import StreamsMetadata
from millstream.server.http_error import HttpError
from millstream.server.routes.keys import KEY, KEY_AS, STORE, given_key
from millstream.server.routing import Asked, Endpoint
from millstream.server.served import Served, known_place
from millstream.server.workers import Workers, answered_on


class MetadataRoutes:
    """Everything under `/metadata`.

    Args:
        served: of which application.
        workers: what waits for the answers.
    """

    def __init__(self, served: Served, workers: Workers) -> None:
        self._served = served
        self._workers = workers

    def endpoints(self) -> list[Endpoint]:
        """All of them."""
        on, served = self._workers, self._served
        return [
            Endpoint(
                "GET",
                "/metadata/threads",
                answered_on(on, lambda _: served.threads()),
                "The stream threads of this instance, their tasks, and where they run.",
                "Threads",
            ),
            Endpoint(
                "GET",
                "/metadata/topology",
                answered_on(on, lambda _: served.topology()),
                "The topology: sub-topologies, global stores, and Kafka Streams' text of it.",
                "Topology",
            ),
            Endpoint(
                "GET",
                "/metadata/instances",
                answered_on(on, lambda _: [_instance(each) for each in served.instances()]),
                "What each instance of the application has, as far as they serve.",
                "Instances",
            ),
            Endpoint(
                "GET",
                "/metadata/stores/{store}",
                answered_on(on, self._with_store),
                "The instances that have a store or a copy of it.",
                "Instances",
                parameters=(STORE,),
                failures=frozenset({404}),
            ),
            Endpoint(
                "GET",
                "/metadata/stores/{store}/keys/{key}",
                answered_on(on, self._of_key),
                "The instance that should have a key, by Kafka's default partitioner.",
                "Place",
                parameters=(STORE, KEY, KEY_AS),
                failures=frozenset({404}),
            ),
            Endpoint(
                "GET",
                "/metadata/lags",
                answered_on(on, self._lags),
                "How far the stores of this instance are behind their changelogs.",
                "Lags",
            ),
        ]

    def _with_store(self, asked: Asked) -> Any:
        name = asked.values["store"]
        # Whether there is one at all.
        self._served.codec_of(name)
        return [
            _instance(each)
            for each in self._served.instances()
            if name in each.state_store_names or name in each.standby_state_store_names
        ]

    def _of_key(self, asked: Asked) -> Any:
        name = asked.values["store"]
        codec = self._served.codec_of(name)
        if codec is None or self._served.is_global(name):
            raise HttpError(
                400, "WRONG_STORE_KIND", f"The keys of store {name} are in no one place."
            )
        place = known_place(self._served, name, given_key(asked, codec))
        if place is None:
            raise HttpError(
                503,
                "STORE_NOT_READY",
                "It is not known yet which instance has what: the group rebalances.",
                retry_after_ms=500,
            )
        return {
            "partition": place.partition,
            "active": _host(place.active_host),
            "standbys": [_host(each) for each in sorted(place.standby_hosts)],
        }

    def _lags(self, _: Asked) -> Any:
        return [
            {
                "store": store,
                "partition": partition,
                "current_offset": lag.current_offset_position,
                "end_offset": lag.end_offset_position,
                "lag": lag.offset_lag,
            }
            for store, lags in sorted(self._served.lags().items())
            for partition, lag in sorted(lags.items())
        ]


def _host(host: HostInfo) -> dict[str, Any] | None:
    """Where an instance is; None for one that is not known."""
    return None if host.port < 0 else {"host": host.host, "port": host.port}


def _instance(instance: StreamsMetadata) -> dict[str, Any]:
    def places(found: frozenset[Any]) -> list[dict[str, Any]]:
        return [{"topic": topic, "partition": partition} for topic, partition in sorted(found)]

    return {
        "host": instance.host_info.host,
        "port": instance.host_info.port,
        "stores": sorted(instance.state_store_names),
        "partitions": places(instance.topic_partitions),
        "standby_stores": sorted(instance.standby_state_store_names),
        "standby_partitions": places(instance.standby_topic_partitions),
    }
