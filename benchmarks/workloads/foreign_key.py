"""Two tables joined by a foreign key."""

from __future__ import annotations

from typing import Any

import orjson
from arguments import Arguments
from harness.load import Load, event_json
from progress import MarkingSerde, Progress
from user_towns import TOWNS, USERS_TOPIC, fill_users, town_of, users_of
from workload import Records, Workload

from millstream import Materialized, StreamsBuilder, Topology
from millstream.serdes import JSON, STRING

NAME = "located"


class ForeignKey(Workload[list[int]]):
    """Joins a table of orders, each with its own key, with a table of 10,000 users by the user in
    the order, through two internal topics. The rows of both tables count as records. The users are
    not cached."""

    input = "orders-of-users"
    other_inputs = (USERS_TOPIC,)
    internal_topics = (
        f"{NAME}-subscription-registration-topic",
        f"{NAME}-subscription-response-topic",
    )
    is_complete_when_committed = False

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        """Return a foreign-key join. The run ends with the last joined row."""
        builder = StreamsBuilder()
        users = builder.table(
            f"{arguments.input_topic}-{USERS_TOPIC}",
            key=STRING,
            value=JSON,
            # A cache would forward users again when it is flushed, and join rows again.
            store=Materialized("users", key=STRING, value=JSON, caching=False),
        )
        orders = builder.table(
            arguments.input_topic, key=STRING, value=MarkingSerde(JSON, progress)
        )

        def located(order: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
            progress.add()
            return {**order, "town": user["town"]}

        orders.join(
            users, located, foreign_key=lambda order: order["user"], name=NAME
        ).to_stream().to(arguments.output_topic, key=STRING, value=JSON)
        return builder.build()

    def steps(self, records: int) -> int:
        """Return the number of orders."""
        return records - users_of(records)

    def fill(self, load_: Load) -> None:
        """Write both tables."""
        users = fill_users(load_)
        writer = load_.create()
        for number, (timestamp, user, amount) in enumerate(load_.events(load_.records - users)):
            value = event_json(number, user % users, amount)
            writer.send(b"order-%d" % number, value, timestamp)
        writer.flush()

    def answer(self, load_: Load) -> list[int]:
        """Return the town of each order, by its number."""
        users = users_of(load_.records)
        events = load_.events(load_.records - users)
        return [TOWNS.index(town_of(user % users)) for _, user, _ in events]

    def wrong(self, answer: list[int], records: Records) -> str | None:
        """Compare the latest row of each order."""
        found = [-1] * len(answer)
        for key, value in records:
            found[int(key[6:])] = TOWNS.index(orjson.loads(value)["town"]) if value else -1
        if found == answer:
            return None
        wrong = sum(one != other for one, other in zip(found, answer, strict=True))
        return f"{wrong:,} of {len(answer):,} orders have a wrong town or no town"


WORKLOAD = ForeignKey()
