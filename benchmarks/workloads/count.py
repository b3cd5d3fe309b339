"""Count by key."""

from __future__ import annotations

from array import array

from arguments import Arguments
from harness.check import counts_of_users, wrong_users
from harness.load import Load
from progress import CountingSerde, Progress
from workload import Records, Workload

from millstream import StreamsBuilder, Topology
from millstream.serdes import BYTES, LONG, STRING


class Count(Workload["array[int]"]):
    """Counts records by key in a persistent, cached, changelogged store, and writes new counts to a
    topic. The values are not decoded."""

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        builder = StreamsBuilder()
        (
            builder.stream(arguments.input_topic, key=STRING, value=CountingSerde(BYTES, progress))
            .group_by_key(key=STRING, value=BYTES)
            .count(store="counts")
            .to_stream()
            .to(arguments.output_topic, key=STRING, value=LONG)
        )
        return builder.build()

    def answer(self, load_: Load) -> array[int]:
        """Return the count of each user."""
        return counts_of_users(load_)

    def wrong(self, answer: array[int], records: Records) -> str | None:
        """Compare the latest count of each user."""
        return wrong_users(answer, records)


WORKLOAD = Count()
