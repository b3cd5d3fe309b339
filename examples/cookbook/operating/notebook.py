"""Notebooks: read the state of a running application.

`read_store` reads a store from its changelog as a Spark DataFrame, with typed columns and the
latest value of each key. It needs the application id, the name of the store and the serdes, but not
the code of the application, which may run elsewhere or not at all. Install the packages for the
notebook with `pip install 'millstream[spark]' jupyter`;
[`counts_in_a_notebook.py`](../../counts_in_a_notebook.py) is a complete program. The test here only
covers the topology, because `read_store` needs a broker.
"""

from __future__ import annotations

from typing import Any

from millstream import StreamsBuilder, StreamsConfig, Topology
from millstream.lake import read_store
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

APPLICATION = "clicks"


def counted() -> Topology:
    """Return the topology of the application."""
    builder = StreamsBuilder()
    builder.stream("clicks", key=STRING, value=STRING).group_by_key().count(store="counts")
    return builder.build()


def most_active(spark: Any, bootstrap_servers: str) -> Any:
    """Return the ten users with the most clicks as a DataFrame."""
    config = StreamsConfig(application_id=APPLICATION, bootstrap_servers=bootstrap_servers)
    counts = read_store(spark, config, "counts", key=STRING, value=LONG)
    return counts.orderBy(counts.value.desc()).limit(10)


def test_the_store_contains_the_counts() -> None:
    with TopologyTestDriver(counted()) as driver:
        clicks = driver.create_input_topic("clicks", key=STRING, value=STRING)
        clicks.pipe_key_values([("ann", "/"), ("ann", "/tea")])
        assert driver.get_state_store("counts").get("ann").value == 2
