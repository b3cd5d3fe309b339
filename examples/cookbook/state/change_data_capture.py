"""Change data capture: a table from Debezium's change events.

Debezium writes a record for each change of a row: its state `before`, its state `after`, and the
operation (`c` created, `u` updated, `d` deleted, `r` read in the first snapshot, `t` truncated). A
table needs the row itself, and None for a deleted row. After a deletion, Debezium also writes a
tombstone, which has the same meaning.
"""

from __future__ import annotations

from typing import Any

import msgspec

from millstream import StreamsBuilder, Topology
from millstream.serdes import LONG, STRING, json_of
from millstream.testing import TopologyTestDriver


class Customer(msgspec.Struct, frozen=True):
    """A row of the database table."""

    id: int
    town: str


class Payload(msgspec.Struct, frozen=True):
    """A change of a row. Other fields of the record are ignored."""

    op: str
    before: Customer | None = None
    after: Customer | None = None


class Change(msgspec.Struct, frozen=True):
    """A change event of Debezium, with `schemas.enable=true`."""

    payload: Payload


CUSTOMER, CHANGE = json_of(Customer), json_of(Change)


def row(change: Change) -> Any:
    """Return the row after the change, or None if it was deleted."""
    return None if change.payload.op == "d" else change.payload.after


def customers_by_town() -> Topology:
    """Count the customers in each town from the changes of a database table."""
    builder = StreamsBuilder()
    (
        builder.stream("db.public.customers", key=STRING, value=CHANGE)
        # After each deletion, Debezium writes a record without a value for compaction.
        .filter(lambda id_, change: change is not None)
        .map_values(row)
        .to_table(key=STRING, value=CUSTOMER, store="customers")
        .group_by(lambda id_, customer: (customer.town, id_), key=STRING, value=STRING)
        .count(store="customers-by-town")
        .to_stream()
        .to("customers-by-town", key=STRING, value=LONG)
    )
    return builder.build()


def test_rows_are_inserted_updated_and_deleted() -> None:
    ann, moved, bob = Customer(1, "Oslo"), Customer(1, "Rome"), Customer(2, "Oslo")
    with TopologyTestDriver(customers_by_town()) as driver:
        changes = driver.create_input_topic("db.public.customers", key=STRING, value=CHANGE)
        changes.pipe_input("1", Change(Payload("r", after=ann)))
        changes.pipe_input("2", Change(Payload("c", after=bob)))
        changes.pipe_input("1", Change(Payload("u", before=ann, after=moved)))
        changes.pipe_input("2", Change(Payload("d", before=bob)))
        changes.pipe_input("2", None)
        towns = driver.create_output_topic("customers-by-town", key=STRING, value=LONG)
        assert towns.read_key_values_to_map() == {"Oslo": 0, "Rome": 1}
