"""Autoscaling: add and remove stream threads with the load.

Pass a pair as `num_stream_threads`. The application starts with the minimum, adds threads while the
estimated time to process the lag exceeds `elastic_lag_target_ms`, and removes threads once fewer
would have been enough for `elastic_cooldown_ms`. On a cluster with dynamic allocation, Spark adds
executors for new threads. The number of partitions is an upper bound. With standbys, moving tasks
is cheap. To scale the number of instances on Kubernetes, use `millstream lag --json` or the lag
metrics.
"""

from __future__ import annotations

from millstream import StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import STRING


def config(bootstrap_servers: str) -> StreamsConfig:
    """Return settings for one to eight threads, which process the lag in about 10 s."""
    return StreamsConfig(
        application_id="orders",
        bootstrap_servers=bootstrap_servers,
        num_stream_threads=(1, 8),
        elastic_lag_target_ms=10_000,
        elastic_cooldown_ms=120_000,
        num_standby_replicas=1,
    )


def counted() -> Topology:
    """Count the orders of each customer in a store."""
    builder = StreamsBuilder()
    builder.stream("orders", key=STRING, value=STRING).group_by_key().count(store="counts")
    return builder.build()


def test_the_bounds_are_valid() -> None:
    assert config("not-used:9092").num_stream_threads == (1, 8)
