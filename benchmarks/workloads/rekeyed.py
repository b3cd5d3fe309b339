"""Count by a field of the value."""

from __future__ import annotations

from array import array

from arguments import Arguments
from harness.check import counts_of_users, wrong_users
from harness.load import Load
from progress import CountingSerde, MarkingSerde, Progress
from workload import Records, Workload

from millstream import StreamsBuilder, Topology
from millstream.serdes import JSON, LONG, STRING


class Rekeyed(Workload["array[int]"]):
    """Counts by the user in the value, through a repartition topic."""

    internal_topics = ("counts-repartition",)
    is_complete_when_committed = False

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        """Return a count by a field. The run ends with the last repartitioned record."""
        builder = StreamsBuilder()
        (
            builder.stream(arguments.input_topic, key=STRING, value=MarkingSerde(JSON, progress))
            .group_by(
                lambda _, event: event["user"],
                key=STRING,
                value=CountingSerde(JSON, progress),
                name="counts",
            )
            .count(store="counted")
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


WORKLOAD = Rekeyed()
