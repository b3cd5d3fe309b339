"""Autoscaling: threads that come and go with the load.

A pair as `num_stream_threads` is all it takes: the application begins with the least, adds threads
when what waits would take longer than `elastic_lag_target_ms` to be worked off, and lets them go
when fewer would have been enough for `elastic_cooldown_ms`. On a cluster with dynamic allocation,
Spark adds executors for them. The number of partitions is the upper bound; standbys keep moves
cheap. On Kubernetes, `millstream lag --json` and the metric of the lag are there for a scaler of
instances.
"""

from __future__ import annotations

from millstream import StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import STRING


def config(bootstrap_servers: str) -> StreamsConfig:
    """One thread at night, eight when it has to be; no record waits for much longer than 10 s."""
    return StreamsConfig(
        application_id="orders",
        bootstrap_servers=bootstrap_servers,
        num_stream_threads=(1, 8),
        elastic_lag_target_ms=10_000,
        elastic_cooldown_ms=120_000,
        num_standby_replicas=1,
    )


def counted() -> Topology:
    """Orders in, a count of each customer's in the store."""
    builder = StreamsBuilder()
    builder.stream("orders", key=STRING, value=STRING).group_by_key().count(store="counts")
    return builder.build()


def test_the_bounds_are_read() -> None:
    assert config("not-used:9092").num_stream_threads == (1, 8)
