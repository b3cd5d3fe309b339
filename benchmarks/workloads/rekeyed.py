"""Count by something else than the key."""

from __future__ import annotations

from array import array

from arguments import Arguments
from check import counts_of_users, wrong_users
from load import Load
from progress import Counting, Progress, Reading
from workload import Records, Workload

from millstream import StreamsBuilder, Topology
from millstream.serdes import JSON, LONG, STRING


class Rekeyed(Workload["array[int]"]):
    """Counts by the user that the value names: through a repartition topic."""

    between = ("counts-repartition",)
    offsets_tell = False

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        """A group by a field, and a count. The end is the last record behind the repartition."""
        builder = StreamsBuilder()
        (
            builder.stream(arguments.input_topic, key=STRING, value=Reading(JSON, progress))
            .group_by(
                lambda _, event: event["user"],
                key=STRING,
                value=Counting(JSON, progress),
                name="counts",
            )
            .count(store="counted")
            .to_stream()
            .to(arguments.output_topic, key=STRING, value=LONG)
        )
        return builder.build()

    def answer(self, load_: Load) -> array[int]:
        """The count of each user."""
        return counts_of_users(load_)

    def wrong(self, answer: array[int], records: Records) -> str | None:
        """Compares the last count of each user."""
        return wrong_users(answer, records)


WORKLOAD = Rekeyed()
