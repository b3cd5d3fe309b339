"""Each record once in a database: what exactly-once cannot do by itself, and how it is done.

Kafka's transactions cover Kafka. A database beside it takes a record again after a crash, unless it
can tell that it has it already: write the record's place (topic, partition, offset) in the same
transaction of the database, under a unique key, and leave out what is there. Then at-least-once in
front of it is enough. The other way round, from a database's change to Kafka, is the *outbox*: the
change and a row that says what to tell are one transaction, and Debezium reads the rows into a
topic (see *change data capture*).
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
    """Adds amounts to balances in a database, each once.

    Args:
        path: the database.
    """

    def __init__(self, path: str) -> None:
        # In the worker: a supplier makes the processor there.
        self.database = sqlite3.connect(path)
        self.database.executescript(TABLES)

    def process(self, record: Record[str, int]) -> None:
        place = self.context.record_metadata()
        assert place is not None
        with self.database:  # one transaction
            row = self.database.execute(
                "SELECT next_offset FROM applied WHERE topic = ? AND partition = ?",
                (place.topic, place.partition),
            ).fetchone()
            if row is not None and place.offset < row[0]:
                return  # the database has it from before the crash
            self.database.execute(
                "INSERT INTO balances VALUES (?, ?) "
                "ON CONFLICT (account) DO UPDATE SET cents = cents + excluded.cents",
                (record.key, record.value),
            )
            self.database.execute(
                "INSERT OR REPLACE INTO applied VALUES (?, ?, ?)",
                (place.topic, place.partition, place.offset + 1),
            )

    def close(self) -> None:
        self.database.close()


def booked(path: str) -> Topology:
    """Amounts by account in, balances in the database."""
    builder = StreamsBuilder()
    amounts = builder.stream("amounts", key=STRING, value=LONG)
    amounts.process(lambda: Ledger(path), name="ledger")
    return builder.build()


def test_what_comes_again_after_a_crash_is_not_booked_again() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "ledger.db"))
        for _ in range(2):
            # The second driver begins at offset 0 again, as a thread does that could not commit.
            with TopologyTestDriver(booked(path)) as driver:
                amounts = driver.create_input_topic("amounts", key=STRING, value=LONG)
                amounts.pipe_key_values([("ann", 500), ("ann", -200), ("bob", 100)])
        database = sqlite3.connect(path)
        balances = dict(database.execute("SELECT account, cents FROM balances"))
        database.close()
    assert balances == {"ann": 300, "bob": 100}
