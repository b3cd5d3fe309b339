"""Exactly-once writes to a database.

Kafka's transactions only cover Kafka. After a crash, some records are processed again. To apply
each record to a database only once, store the next offset of each topic and partition in the same
database transaction as the change, and skip records with lower offsets. At-least-once processing is
then sufficient. For the opposite direction, from a database to Kafka, use the *outbox* pattern: one
transaction writes the change and a row that describes the event, and Debezium copies these rows to
a topic (see *change data capture*).
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

from millstream import Processor, Record, StreamsBuilder, Topology
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

TABLES = """
CREATE TABLE IF NOT EXISTS balances (account TEXT PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS applied (
    topic TEXT, partition INTEGER, next_offset INTEGER, PRIMARY KEY (topic, partition)
);
"""


class Ledger(Processor[str, int, None, None]):
    """A processor that adds each amount to a balance in a database, exactly once."""

    def __init__(self, path: str) -> None:
        # This runs on the worker, because the supplier creates the processor there.
        self.database = sqlite3.connect(path)
        self.database.executescript(TABLES)

    def process(self, record: Record[str, int]) -> None:
        position = self.context.record_metadata()
        assert position is not None
        with self.database:  # one transaction
            row = self.database.execute(
                "SELECT next_offset FROM applied WHERE topic = ? AND partition = ?",
                (position.topic, position.partition),
            ).fetchone()
            if row is not None and position.offset < row[0]:
                return  # already applied before the crash
            self.database.execute(
                "INSERT INTO balances VALUES (?, ?) "
                "ON CONFLICT (account) DO UPDATE SET cents = cents + excluded.cents",
                (record.key, record.value),
            )
            self.database.execute(
                "INSERT OR REPLACE INTO applied VALUES (?, ?, ?)",
                (position.topic, position.partition, position.offset + 1),
            )

    def close(self) -> None:
        self.database.close()


def booked(path: str) -> Topology:
    """Add amounts to the balance of their account in the database."""
    builder = StreamsBuilder()
    amounts = builder.stream("amounts", key=STRING, value=LONG)
    amounts.process(lambda: Ledger(path), name="ledger")
    return builder.build()


def test_repeated_records_are_skipped_after_a_crash() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "ledger.db"))
        for _ in range(2):
            # The second driver starts at offset 0 again, like a thread that did not commit.
            with TopologyTestDriver(booked(path)) as driver:
                amounts = driver.create_input_topic("amounts", key=STRING, value=LONG)
                amounts.pipe_key_values([("ann", 500), ("ann", -200), ("bob", 100)])
        database = sqlite3.connect(path)
        balances = dict(database.execute("SELECT account, cents FROM balances"))
        database.close()
    assert balances == {"ann": 300, "bob": 100}
