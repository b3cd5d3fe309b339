"""Erasing a person: a request to be forgotten that reaches every store.

Tables forget a key when a record without value comes for it. So a request becomes such a record:
it is merged into the stream of changes, and a table made of that stream drops the person, its
changelog gets a deletion, and so do the topics behind it. Compaction then removes what was written
before; set `delete.retention.ms` and `max.compaction.lag.ms` of these topics so that it happens in
the time that the law gives. Windows forget by their retention. What was written to other systems is
not Kafka's to erase: let them read the requests, too.
"""

from __future__ import annotations

from typing import Any

from millstream import Materialized, StreamsBuilder, Topology
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver

#: The changelog is compacted within a day, whatever is written meanwhile.
COMPACTED_SOON = {"max.compaction.lag.ms": "86400000", "delete.retention.ms": "86400000"}


def profiles() -> Topology:
    """Profiles and requests to be forgotten in, the table of profiles out."""
    builder = StreamsBuilder()
    changes = builder.stream("profiles", key=STRING, value=JSON)
    forgotten = builder.stream("requests-to-be-forgotten", key=STRING, value=JSON)
    deletions: Any = forgotten.map_values(lambda request: None)
    (
        changes.merge(deletions)
        .to_table(
            key=STRING,
            value=JSON,
            store=Materialized("profiles", key=STRING, value=JSON, logging=COMPACTED_SOON),
        )
        .to_stream()
        .to("current-profiles", key=STRING, value=JSON)
    )
    return builder.build()


def test_nothing_is_left_of_who_is_forgotten() -> None:
    with TopologyTestDriver(profiles()) as driver:
        changes = driver.create_input_topic("profiles", key=STRING, value=JSON)
        requests = driver.create_input_topic("requests-to-be-forgotten", key=STRING, value=JSON)
        changes.pipe_key_values([("ann", {"town": "Oslo"}), ("bob", {"town": "Rome"})])
        requests.pipe_input("ann", {"by": "letter"})
        current = driver.create_output_topic("current-profiles", key=STRING, value=JSON)
        assert current.read_key_values_to_map() == {"ann": None, "bob": {"town": "Rome"}}
        assert driver.get_state_store("profiles").get("ann") is None
