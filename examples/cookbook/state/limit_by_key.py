"""A limit for each key: at most three messages a minute to one user.

What is allowed again as time passes is a token bucket: it holds three tokens, a message takes one,
and one comes back each twenty seconds. Tokens and the time of the last look are all that has to be
kept. It goes by the records' own times, so a replay of the topic decides the same again. What is
over the limit goes to a topic, where somebody may count it.
"""

from __future__ import annotations

import msgspec

from millstream import (
    KeyValueStore,
    Processor,
    ProcessorContext,
    Record,
    Stores,
    StreamsBuilder,
    Topology,
)
from millstream.serdes import STRING, json_of
from millstream.testing import TopologyTestDriver

MOST = 3.0
PER_MS = 1 / 20_000


class Bucket(msgspec.Struct, frozen=True):
    """How many tokens were left, and when."""

    tokens: float
    at_ms: int


class Limit(Processor[str, str, str, str]):
    """Forwards to `allowed` while there are tokens, else to `refused`."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        self.buckets: KeyValueStore[str, Bucket] = context.get_state_store("buckets")

    def process(self, record: Record[str, str]) -> None:
        now_ms = record.timestamp
        last = self.buckets.get(record.key) or Bucket(MOST, now_ms)
        passed_ms = max(0, now_ms - last.at_ms)
        tokens = min(MOST, last.tokens + passed_ms * PER_MS)
        allowed = tokens >= 1
        left = Bucket(tokens - 1 if allowed else tokens, max(now_ms, last.at_ms))
        self.buckets.put(record.key, left)
        self.context.forward(record, "allowed" if allowed else "refused")


def limited() -> Topology:
    """Messages by user in, those that may be sent out."""
    builder = StreamsBuilder()
    buckets = Stores.persistent_key_value("buckets")
    builder.add_state_store(Stores.key_value_builder(buckets, STRING, json_of(Bucket)))
    messages = builder.stream("messages", key=STRING, value=STRING).process(
        Limit, stores=["buckets"], name="limit"
    )
    messages.to("messages-to-send", key=STRING, value=STRING, name="allowed")
    messages.to("messages-refused", key=STRING, value=STRING, name="refused")
    return builder.build()


def test_a_burst_is_cut_and_tokens_come_back() -> None:
    with TopologyTestDriver(limited()) as driver:
        messages = driver.create_input_topic("messages", key=STRING, value=STRING)
        for second in (0, 1, 2, 3, 21, 22):
            messages.pipe_input("ann", f"at {second}", timestamp=second * 1_000)
        messages.pipe_input("bob", "hello", timestamp=22_000)
        sent = driver.create_output_topic("messages-to-send", key=STRING, value=STRING)
        refused = driver.create_output_topic("messages-refused", key=STRING, value=STRING)
        assert sent.read_values() == ["at 0", "at 1", "at 2", "at 21", "hello"]
        assert refused.read_values() == ["at 3", "at 22"]
