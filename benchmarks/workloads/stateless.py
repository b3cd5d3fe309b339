"""Filter events and add a field, without state."""

from __future__ import annotations

import orjson
from arguments import Arguments
from computations import PASS_ABOVE, cents
from harness.load import Load
from progress import CountingSerde, Progress
from workload import Records, Workload

from millstream import StreamsBuilder, Topology
from millstream.serdes import JSON, STRING


class Stateless(Workload[tuple[int, int]]):
    """Keeps amounts above 40 (three in five), and adds a field. Reads and writes JSON, as dicts
    (Java: a class with public fields)."""

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        builder = StreamsBuilder()
        (
            builder.stream(arguments.input_topic, key=STRING, value=CountingSerde(JSON, progress))
            .filter(lambda _, event: event["amount"] > PASS_ABOVE)
            .map_values(lambda event: {**event, "cents": cents(event["amount"])})
            .to(arguments.output_topic, key=STRING, value=JSON)
        )
        return builder.build()

    def answer(self, load_: Load) -> tuple[int, int]:
        """Return the number of events that pass, and the sum of their cents."""
        passed = total = 0
        for _, _, amount in load_.events():
            if amount > PASS_ABOVE:
                passed += 1
                total += cents(amount)
        return passed, total

    def wrong(self, answer: tuple[int, int], records: Records) -> str | None:
        """Compare the number of events and the sum."""
        passed = total = 0
        for _, value in records:
            passed += 1
            total += orjson.loads(value)["cents"]
        if (passed, total) == answer:
            return None
        return (
            f"{passed:,} records with {total:,} cents were written, expected {answer[0]:,} with "
            f"{answer[1]:,} cents"
        )


WORKLOAD = Stateless()
