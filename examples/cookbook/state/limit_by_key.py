"""Rate limit per key: at most three messages per minute to one user.

This is a token bucket: it holds up to three tokens, a message takes one, and a token is added every
twenty seconds. The state is only the number of tokens and the time of the last update. The limit
uses the timestamps of the records, so replaying the topic gives the same results. Messages over the
limit go to a separate topic.
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

CAPACITY = 3.0
TOKENS_PER_MS = 1 / 20_000


class Bucket(msgspec.Struct, frozen=True):
    """The number of tokens at a point in time."""

    tokens: float
    at_ms: int


class Limit(Processor[str, str, str, str]):
    """A processor that rejects records of users without tokens."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        self.buckets: KeyValueStore[str, Bucket] = context.get_state_store("buckets")

    def process(self, record: Record[str, str]) -> None:
        now_ms = record.timestamp
        last = self.buckets.get(record.key) or Bucket(CAPACITY, now_ms)
        passed_ms = max(0, now_ms - last.at_ms)
        tokens = min(CAPACITY, last.tokens + passed_ms * TOKENS_PER_MS)
        allowed = tokens >= 1
        left = Bucket(tokens - 1 if allowed else tokens, max(now_ms, last.at_ms))
        self.buckets.put(record.key, left)
        self.context.forward(record, "allowed" if allowed else "rejected")


def limited() -> Topology:
    """Separate the messages that exceed a user's limit."""
    builder = StreamsBuilder()
    buckets = Stores.persistent_key_value("buckets")
    builder.add_state_store(Stores.key_value_builder(buckets, STRING, json_of(Bucket)))
    messages = builder.stream("messages", key=STRING, value=STRING).process(
        Limit, stores=["buckets"], name="limit"
    )
    messages.to("messages-to-send", key=STRING, value=STRING, name="allowed")
    messages.to("messages-rejected", key=STRING, value=STRING, name="rejected")
    return builder.build()


def test_bursts_are_limited_and_tokens_are_added() -> None:
    with TopologyTestDriver(limited()) as driver:
        messages = driver.create_input_topic("messages", key=STRING, value=STRING)
        for second in (0, 1, 2, 3, 21, 22):
            messages.pipe_input("ann", f"at {second}", timestamp=second * 1_000)
        messages.pipe_input("bob", "hello", timestamp=22_000)
        sent = driver.create_output_topic("messages-to-send", key=STRING, value=STRING)
        rejected = driver.create_output_topic("messages-rejected", key=STRING, value=STRING)
        assert sent.read_values() == ["at 0", "at 1", "at 2", "at 21", "hello"]
        assert rejected.read_values() == ["at 3", "at 22"]
