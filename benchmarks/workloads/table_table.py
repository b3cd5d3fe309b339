"""Two tables joined by key."""

from __future__ import annotations

from array import array

import orjson
from arguments import Arguments
from computations import cents
from harness.load import Load
from payments import INPUT, PAYMENTS, fill_payments, settled
from progress import CountingSerde, Progress
from workload import Records, Workload

from millstream import StreamsBuilder, Topology
from millstream.serdes import JSON, STRING

#: Order, payment and amount due by user number, in arrays because there may be millions of users.
Rows = tuple["array[int]", "array[int]", "array[int]"]
#: Stands for a missing row, because no id or amount has this value.
_NONE = -(1 << 63)
_NO_ROW = {"order": _NONE, "payment": _NONE, "due": _NONE}


class TableTable(Workload[Rows]):
    """Joins the tables of the latest order and the latest payment of each user. The records
    alternate between the two topics. Each table is in a cached, changelogged store."""

    input = INPUT
    other_inputs = (PAYMENTS,)

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        builder = StreamsBuilder()
        topics = arguments.input_topic, f"{arguments.input_topic}-{PAYMENTS}"
        orders, payments = (
            builder.table(
                topic,
                key=STRING,
                value=CountingSerde(JSON, progress, topic),
                store=f"table-{number}",
            )
            for number, topic in enumerate(topics)
        )
        orders.join(payments, settled).to_stream().to(
            arguments.output_topic, key=STRING, value=JSON
        )
        return builder.build()

    def fill(self, load_: Load) -> None:
        """Write both topics."""
        fill_payments(load_)

    def answer(self, load_: Load) -> Rows:
        """Return the latest order and payment of each user with both, and the amount due."""
        rows = _no_rows(load_.keys)
        orders, payments, due = rows
        prices = array("q", bytes(8 * load_.keys)), array("q", bytes(8 * load_.keys))
        for number, (_, user, amount) in enumerate(load_.events()):
            side = number % 2
            rows[side][user], prices[side][user] = number, cents(amount)
            if orders[user] != _NONE and payments[user] != _NONE:
                due[user] = prices[0][user] - prices[1][user]
        for user, (order, payment) in enumerate(zip(orders, payments, strict=True)):
            if _NONE in (order, payment):
                orders[user] = payments[user] = _NONE
        return rows

    def wrong(self, answer: Rows, records: Records) -> str | None:
        """Compare the latest row of each user."""
        found = _no_rows(len(answer[0]))
        orders, payments, due = found
        for key, value in records:
            row = orjson.loads(value) if value else _NO_ROW
            user = int(key[5:])
            orders[user], payments[user], due[user] = row["order"], row["payment"], row["due"]
        if found == answer:
            return None
        rows = zip(zip(*answer, strict=True), zip(*found, strict=True), strict=True)
        wrong = sum(one != other for one, other in rows)
        came = len(orders) - orders.count(_NONE)
        return f"{wrong:,} of {len(answer[0]):,} users have a wrong row; the output has {came:,}"


def _no_rows(keys: int) -> Rows:
    none = array("q", [_NONE])
    return none * keys, none * keys, none * keys


WORKLOAD = TableTable()
