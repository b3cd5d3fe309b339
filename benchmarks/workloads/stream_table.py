"""A stream joined with a table."""

from __future__ import annotations

from collections import Counter

import orjson
from arguments import Arguments
from harness.load import Load, event_json, user_key
from progress import CountingSerde, Progress
from user_towns import USERS_TOPIC, fill_users, town_of, users_of
from workload import Records, Workload

from millstream import StreamsBuilder, Topology
from millstream.serdes import JSON, STRING


class StreamTable(Workload[dict[str, int]]):
    """Adds the user's town to each event, from a table of 10,000 users that was written beforehand.
    Reads and writes JSON. The rows of the table count as records."""

    input = "events-of-users"
    other_inputs = (USERS_TOPIC,)

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        builder = StreamsBuilder()
        users = builder.table(f"{arguments.input_topic}-{USERS_TOPIC}", key=STRING, value=JSON)
        (
            builder.stream(arguments.input_topic, key=STRING, value=CountingSerde(JSON, progress))
            .join(users, lambda event, user: {**event, "town": user["town"]})
            .to(arguments.output_topic, key=STRING, value=JSON)
        )
        return builder.build()

    def steps(self, records: int) -> int:
        """Return the number of events."""
        return records - users_of(records)

    def fill(self, load_: Load) -> None:
        """Write the table, then the events of its users."""
        users = fill_users(load_)
        writer = load_.create()
        for number, (timestamp, user, amount) in enumerate(load_.events(load_.records - users)):
            user %= users
            writer.send(user_key(user), event_json(number, user, amount), timestamp)
        writer.flush()

    def answer(self, load_: Load) -> dict[str, int]:
        """Return the number of events from each town."""
        users = users_of(load_.records)
        events = load_.events(load_.records - users)
        return dict(Counter(town_of(user % users) for _, user, _ in events))

    def wrong(self, answer: dict[str, int], records: Records) -> str | None:
        """Compare the number of events from each town."""
        found = dict(Counter(orjson.loads(value)["town"] for _, value in records))
        return None if found == answer else f"the counts are {found}, expected {answer}"


WORKLOAD = StreamTable()
