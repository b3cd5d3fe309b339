"""Sum by key."""

from __future__ import annotations

from array import array

from arguments import Arguments
from computations import cents
from harness.check import wrong_users
from harness.load import Load
from progress import CountingSerde, Progress
from workload import Records, Workload

from millstream import Materialized, StreamsBuilder, Topology
from millstream.serdes import JSON, LONG, STRING


class Sum(Workload["array[int]"]):
    """Sums an amount in the JSON value by key in a persistent, cached, changelogged store, and
    writes new sums to a topic."""

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        builder = StreamsBuilder()
        (
            builder.stream(arguments.input_topic, key=STRING, value=CountingSerde(JSON, progress))
            .group_by_key(key=STRING, value=JSON)
            .aggregate(
                lambda: 0,
                lambda _, event, total: total + cents(event["amount"]),
                store=Materialized("sums", key=STRING, value=LONG),
            )
            .to_stream()
            .to(arguments.output_topic, key=STRING, value=LONG)
        )
        return builder.build()

    def answer(self, load_: Load) -> array[int]:
        """Return the sum of each user."""
        sums = array("q", bytes(8 * load_.keys))
        for _, user, amount in load_.events():
            sums[user] += cents(amount)
        return sums

    def wrong(self, answer: array[int], records: Records) -> str | None:
        """Compare the latest sum of each user."""
        return wrong_users(answer, records)


WORKLOAD = Sum()
