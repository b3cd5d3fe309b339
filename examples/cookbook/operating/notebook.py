"""In a notebook: look at the state of a running application.

`read_store` reads a store from its changelog as a DataFrame of Spark: typed columns, and the newest
value of each key. It needs the application's id, the store's name and the serdes, and none of its
code; the application may run elsewhere, or not at all. Start the notebook with
`pip install 'millstream[spark]' jupyter`;
[`counts_in_a_notebook.py`](../../counts_in_a_notebook.py) is a whole program. What can be tried
without a broker is the topology, in the test driver.
"""

from __future__ import annotations

from typing import Any

from millstream import StreamsBuilder, StreamsConfig, Topology
from millstream.lake import read_store
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

APPLICATION = "clicks"


def counted() -> Topology:
    """What the application does."""
    builder = StreamsBuilder()
    builder.stream("clicks", key=STRING, value=STRING).group_by_key().count(store="counts")
    return builder.build()


def most_active(spark: Any, bootstrap_servers: str) -> Any:
    """A cell: the ten users with the most clicks, as a DataFrame."""
    config = StreamsConfig(application_id=APPLICATION, bootstrap_servers=bootstrap_servers)
    counts = read_store(spark, config, "counts", key=STRING, value=LONG)
    return counts.orderBy(counts.value.desc()).limit(10)


def test_the_store_has_what_the_cell_asks_for() -> None:
    with TopologyTestDriver(counted()) as driver:
        clicks = driver.create_input_topic("clicks", key=STRING, value=STRING)
        clicks.pipe_key_values([("ann", "/"), ("ann", "/tea")])
        assert driver.get_state_store("counts").get("ann").value == 2
