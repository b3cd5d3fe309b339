"""Counts of words."""

from __future__ import annotations

import random

from arguments import Arguments
from harness.check import Numbers
from harness.load import Load, user_key
from progress import CountingSerde, MarkingSerde, Progress
from workload import Records, Workload

from millstream import StreamsBuilder, Topology
from millstream.serdes import LONG, STRING

WORDS_OF_A_LINE = 8
#: The number of different lines, which repeat.
LINES = 10_000
VOCABULARY = 10_000


class Wordcount(Workload[Numbers]):
    """Splits lines of eight words, groups by word through a repartition topic, and counts. A few of
    the 10,000 words are frequent, but most are rare. A record is a line."""

    input = "lines"
    internal_topics = ("counts-repartition",)
    is_complete_when_committed = False

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        builder = StreamsBuilder()
        (
            builder.stream(arguments.input_topic, key=STRING, value=MarkingSerde(STRING, progress))
            .flat_map_values(lambda line: line.split(" "))
            .group_by(
                lambda _, word: word,
                key=STRING,
                value=CountingSerde(STRING, progress),
                name="counts",
            )
            .count(store="counted")
            .to_stream()
            .to(arguments.output_topic, key=STRING, value=LONG)
        )
        return builder.build()

    def steps(self, records: int) -> int:
        """Return the number of words."""
        return records * WORDS_OF_A_LINE

    def fill(self, load_: Load) -> None:
        """Write the lines, with users as keys."""
        lines = [line.encode() for line in _lines(load_.seed)]
        writer = load_.create()
        for number, (timestamp, user, _) in enumerate(load_.events()):
            writer.send(user_key(user), lines[number % LINES], timestamp)
        writer.flush()

    def answer(self, load_: Load) -> Numbers:
        """Return the count of each word."""
        counts = Numbers()
        times, more = divmod(load_.records, LINES)
        for number, line in enumerate(_lines(load_.seed)):
            if count := times + (number < more):
                for word in line.split():
                    counts.add(word.encode(), count)
        return counts

    def wrong(self, answer: Numbers, records: Records) -> str | None:
        """Compare the latest count of each word."""
        return answer.wrong(records, "words")


def _lines(seed: int) -> list[str]:
    draw = random.Random(seed).random
    return [
        " ".join(f"word-{int(draw() ** 3 * VOCABULARY)}" for _ in range(WORDS_OF_A_LINE))
        for _ in range(LINES)
    ]


WORKLOAD = Wordcount()
