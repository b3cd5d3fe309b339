"""Erasing a person: an erasure request that reaches every store.

A table deletes a key when it reads a record without a value. This topology turns each request into
such a record and merges it into the stream of changes, where it deletes the person from the table,
from its changelog and from all derived topics. Compaction then removes older records; set
`delete.retention.ms` and `max.compaction.lag.ms` of these topics to the time allowed by law.
Windows are deleted when their retention ends. Kafka cannot erase data in other systems; those
systems must read the requests as well.
"""

from __future__ import annotations

from typing import Any

from millstream import Materialized, StreamsBuilder, Topology
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver

#: Compact the changelog within a day, even if there are no new records.
DAILY_COMPACTION = {"max.compaction.lag.ms": "86400000", "delete.retention.ms": "86400000"}


def profiles() -> Topology:
    """Keep the current profiles, and delete a profile when its erasure is requested."""
    builder = StreamsBuilder()
    changes = builder.stream("profiles", key=STRING, value=JSON)
    requests = builder.stream("erasure-requests", key=STRING, value=JSON)
    deletions: Any = requests.map_values(lambda request: None)
    (
        changes.merge(deletions)
        .to_table(
            key=STRING,
            value=JSON,
            store=Materialized("profiles", key=STRING, value=JSON, logging=DAILY_COMPACTION),
        )
        .to_stream()
        .to("current-profiles", key=STRING, value=JSON)
    )
    return builder.build()


def test_a_request_erases_the_profile() -> None:
    with TopologyTestDriver(profiles()) as driver:
        changes = driver.create_input_topic("profiles", key=STRING, value=JSON)
        requests = driver.create_input_topic("erasure-requests", key=STRING, value=JSON)
        changes.pipe_key_values([("ann", {"town": "Oslo"}), ("bob", {"town": "Rome"})])
        requests.pipe_input("ann", {"by": "letter"})
        current = driver.create_output_topic("current-profiles", key=STRING, value=JSON)
        assert current.read_key_values_to_map() == {"ann": None, "bob": {"town": "Rome"}}
        assert driver.get_state_store("profiles").get("ann") is None
