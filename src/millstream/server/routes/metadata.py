"""Metadata: threads, topology, instances, key locations and lags.

Also the properties of a subscription, which can change while it runs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson

from millstream.assignment.wire_format import HostInfo
from millstream.errors import ConfigError
from millstream.query.streams_metadata import StreamsMetadata
from millstream.server.backend import ServerBackend, known_location
from millstream.server.json_codec import KEY, KEY_AS, STORE, given_key
from millstream.server.parameters import bad_request
from millstream.server.request_routing import Endpoint, HttpRequest
from millstream.server.request_threads import RequestThreads, blocking_handler, json_endpoint
from millstream.server.responses import HttpError


class MetadataRoutes:
    """The endpoints under `/metadata`."""

    def __init__(self, backend: ServerBackend, threads: RequestThreads) -> None:
        self._backend = backend
        self._threads = threads

    def endpoints(self) -> list[Endpoint]:
        backend, get = self._backend, partial(json_endpoint, self._threads)
        return [
            get(
                "/metadata/threads",
                lambda _: backend.threads(),
                "The stream threads of this instance, their tasks and their hosts.",
                "Threads",
            ),
            get(
                "/metadata/topology",
                lambda _: backend.topology(),
                "The topology: sub-topologies, global stores, and text in Kafka Streams' format.",
                "Topology",
            ),
            get(
                "/metadata/instances",
                lambda _: [_instance(each) for each in backend.instances()],
                "The stores and partitions of all instances that serve HTTP.",
                "Instances",
            ),
            get(
                "/metadata/stores/{store}",
                self._with_store,
                "The instances that have partitions or standby copies of a store.",
                "Instances",
                STORE,
            ),
            get(
                "/metadata/stores/{store}/keys/{key}",
                self._of_key,
                "The instances that have a key, according to Kafka's default partitioner.",
                "Place",
                *(STORE, KEY, KEY_AS),
            ),
            get(
                "/metadata/lags",
                self._lags,
                "How far the stores of this instance are behind their changelogs.",
                "Lags",
            ),
        ]

    def _with_store(self, request: HttpRequest) -> Any:
        name = request.values["store"]
        # Raises if there is no such store.
        self._backend.codec_of(name)
        return [
            _instance(each)
            for each in self._backend.instances()
            if name in each.state_store_names or name in each.standby_state_store_names
        ]

    def _of_key(self, request: HttpRequest) -> Any:
        name = request.values["store"]
        codec = self._backend.codec_of(name)
        if codec is None or self._backend.is_global(name):
            raise HttpError(
                400,
                "WRONG_STORE_KIND",
                f"Store {name} is global or internal, so its keys have no single location.",
            )
        place = known_location(self._backend, name, given_key(request, codec))
        if place is None:
            raise HttpError(
                503,
                "STORE_NOT_READY",
                "The assignment is not known yet: the group is rebalancing.",
                retry_after_ms=500,
            )
        return {
            "partition": place.partition,
            "active": _host(place.active_host),
            "standbys": [_host(each) for each in sorted(place.standby_hosts)],
        }

    def _lags(self, _: HttpRequest) -> Any:
        return [
            {
                "store": store,
                "partition": partition,
                "current_offset": lag.current_offset_position,
                "end_offset": lag.end_offset_position,
                "lag": lag.offset_lag,
            }
            for store, lags in sorted(self._backend.lags().items())
            for partition, lag in sorted(lags.items())
        ]


def _host(host: HostInfo) -> dict[str, Any] | None:
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


def subscription_endpoints(backend: ServerBackend, threads: RequestThreads) -> list[Endpoint]:
    def read(_: HttpRequest) -> Any:
        properties = backend.properties()
        if properties is None:
            raise _no_subscription()
        return properties

    def change(request: HttpRequest) -> Any:
        try:
            given = orjson.loads(request.body)
        except orjson.JSONDecodeError as error:
            raise bad_request(f"The body is not JSON: {error}.") from None
        if not isinstance(given, dict) or not given:
            raise bad_request(
                "The body must be a JSON object of properties, such as "
                '{"partition_concurrency": 20}.'
            )
        try:
            properties = backend.change_properties(given)
        except (ConfigError, TypeError) as error:
            raise HttpError(400, "INVALID_PROPERTIES", str(error)) from None
        if properties is None:
            raise _no_subscription()
        return properties

    path = "/subscription/properties"
    failures = frozenset({404})
    return [
        Endpoint(
            "GET",
            path,
            blocking_handler(threads, read),
            "The properties of the subscription.",
            "Properties",
            failures=failures,
        ),
        Endpoint(
            "PUT",
            path,
            blocking_handler(threads, change),
            "Change properties of the running subscription; returns all properties. Values in a "
            "properties file take precedence.",
            "Properties",
            body="Properties",
            failures=failures | {413, 408},
        ),
    ]


def _no_subscription() -> HttpError:
    return HttpError(404, "NOT_FOUND", "This application is not a subscription.")
