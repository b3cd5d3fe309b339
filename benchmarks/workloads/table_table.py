"""Two tables joined by key."""

from __future__ import annotations

import orjson
from arguments import Arguments
from load import Load, user_key
from pairs import INPUT, PAYMENTS, fill_pairs, settled
from progress import Counting, Progress
from rules import cents
from workload import Records, Workload

from millstream import StreamsBuilder, Topology
from millstream.serdes import JSON, STRING


class TableTable(Workload[dict[bytes, tuple[int, int, int]]]):
    """Joins two tables by key, the last order and the last payment of each user; two topics, whose
    records come in turns. Each table is in a cached, changelogged store."""

    input = INPUT
    beside = (PAYMENTS,)

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        """An inner join of tables."""
        builder = StreamsBuilder()
        topics = arguments.input_topic, f"{arguments.input_topic}-{PAYMENTS}"
        orders, payments = (
            builder.table(
                topic, key=STRING, value=Counting(JSON, progress, topic), store=f"table-{number}"
            )
            for number, topic in enumerate(topics)
        )
        orders.join(payments, settled).to_stream().to(
            arguments.output_topic, key=STRING, value=JSON
        )
        return builder.build()

    def fill(self, load_: Load) -> None:
        """Writes both topics."""
        fill_pairs(load_)

    def answer(self, load_: Load) -> dict[bytes, tuple[int, int, int]]:
        """The ids of the last order and payment of each user that has both, and what is due."""
        last: tuple[dict[int, tuple[int, int]], ...] = {}, {}
        for number, (_, user, amount) in enumerate(load_.events()):
            last[number % 2][user] = number, cents(amount)
        orders, payments = last
        return {
            user_key(user): (number, payments[user][0], price - payments[user][1])
            for user, (number, price) in orders.items()
            if user in payments
        }

    def wrong(self, answer: dict[bytes, tuple[int, int, int]], records: Records) -> str | None:
        """Compares the last row of each user."""
        last = dict(records)
        rows = {key: orjson.loads(value) for key, value in last.items() if value}
        found = {key: (row["order"], row["payment"], row["due"]) for key, row in rows.items()}
        if found == answer:
            return None
        wrong = sum(found.get(key) != row for key, row in answer.items())
        return f"{wrong:,} of {len(answer):,} rows are wrong, {len(found):,} came out"


WORKLOAD = TableTable()
