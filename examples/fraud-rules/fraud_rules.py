"""Fraud rules: checks payments, and emits alerts and hourly reports.

    python examples/fraud-rules/fraud_rules.py --demo
    python examples/fraud-rules/fraud_rules.py --bootstrap-servers localhost:9092

A rule is a function of a payment and the recent payments of the card, which are in a store.
Punctuations delete the history of inactive cards, and forward the number of alerts every hour. With
--demo, the program runs in the test driver, without Kafka or Spark: it generates a day of payments
with some fraud, and checks that the rules detect exactly these cases.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from datetime import timedelta

import msgspec

from millstream import (
    KafkaStreams,
    KeyValueStore,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from millstream.serdes import LONG, STRING, json_of
from millstream.testing import TopologyTestDriver

PAYMENTS, ALERTS, REPORTS = "payments", "alerts", "reports"
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
#: No rule uses payments that are older than this.
HISTORY_MS = HOUR_MS


class Payment(msgspec.Struct, frozen=True):
    """A payment; the key is the card number."""

    cents: int
    country: str


class PastPayment(msgspec.Struct, frozen=True, array_like=True):
    """A payment in the history of a card."""

    at_ms: int
    cents: int
    country: str


class Alert(msgspec.Struct, frozen=True):
    """The rule that a payment violates."""

    rule: str
    cents: int


PAYMENT, HISTORY, ALERT = json_of(Payment), json_of(list[PastPayment]), json_of(Alert)


def many_at_once(now: PastPayment, before: Sequence[PastPayment]) -> bool:
    """Return whether this is the fifth payment within a minute."""
    return sum(each.at_ms > now.at_ms - MINUTE_MS for each in before) >= 4


def two_countries(now: PastPayment, before: Sequence[PastPayment]) -> bool:
    """Return whether there are payments in two countries within ten minutes."""
    recent = (each for each in before if each.at_ms > now.at_ms - 10 * MINUTE_MS)
    return any(each.country != now.country for each in recent)


def small_then_large(now: PastPayment, before: Sequence[PastPayment]) -> bool:
    """Return whether a payment above 500.00 follows one of at most 1.00.

    This is a sign of card testing.
    """
    return now.cents > 50_000 and any(each.cents <= 100 for each in before)


RULES: Sequence[Callable[[PastPayment, Sequence[PastPayment]], bool]] = (
    many_at_once,
    two_countries,
    small_then_large,
)


class RuleProcessor(Processor[str, Payment, str, Alert]):
    """Checks each payment against the rules."""

    def init(self, context: ProcessorContext[str, Alert]) -> None:
        super().init(context)
        self.history: KeyValueStore[str, list[PastPayment]] = context.get_state_store("history")
        self.counts: KeyValueStore[str, int] = context.get_state_store("alerts-by-rule")
        # With stream time, the same payments always give the same reports.
        context.schedule(timedelta(hours=1), PunctuationType.STREAM_TIME, self.report)
        context.schedule(timedelta(hours=1), PunctuationType.STREAM_TIME, self.expire)

    def process(self, record: Record[str, Payment]) -> None:
        payment = record.value
        now = PastPayment(record.timestamp, payment.cents, payment.country)
        past = self.history.get(record.key) or []
        before = [each for each in past if each.at_ms > now.at_ms - HISTORY_MS]
        for rule in RULES:
            if rule(now, before):
                name = rule.__name__
                self.counts.put(name, (self.counts.get(name) or 0) + 1)
                self.context.forward(record.with_value(Alert(name, payment.cents)), "alerts")
        self.history.put(record.key, [*before, now])

    def report(self, stream_time_ms: int) -> None:
        """Forward the number of alerts by rule, and reset the counts."""
        with self.counts.all() as found:
            counts = dict(found)
        for name, count in counts.items():
            self.context.forward(Record(name, Alert(name, count), stream_time_ms), "reports")
            self.counts.delete(name)

    def expire(self, stream_time_ms: int) -> None:
        """Delete cards without payments in the last hour."""
        with self.history.all() as cards:
            inactive = [
                card for card, past in cards if past[-1].at_ms <= stream_time_ms - HISTORY_MS
            ]
        for card in inactive:
            self.history.delete(card)


def fraud_rules() -> Topology:
    """Build a topology that emits alerts by card, and reports by rule."""
    builder = StreamsBuilder()
    builder.add_state_store(
        Stores.key_value_builder(Stores.persistent_key_value("history"), STRING, HISTORY)
    )
    builder.add_state_store(
        Stores.key_value_builder(Stores.persistent_key_value("alerts-by-rule"), STRING, LONG)
    )
    checked = builder.stream(PAYMENTS, key=STRING, value=PAYMENT).process(
        RuleProcessor, stores=["history", "alerts-by-rule"], name="rules"
    )
    checked.to(ALERTS, key=STRING, value=ALERT, name="alerts")
    checked.map_values(lambda report: report.cents, name="reports").to(
        REPORTS, key=STRING, value=LONG
    )
    return builder.build()


def sample_payments() -> tuple[list[tuple[int, str, Payment]], set[tuple[str, str]]]:
    """Generate a day of payments, and the cards that violate rules.

    The payments are in chronological order.
    """
    rng = random.Random(11)
    payments: list[tuple[int, str, Payment]] = []
    for number in range(300):
        card, country = f"card-{number:03}", rng.choice(("NO", "PE", "JP"))
        # Legitimate payments are hours apart, in one country, and never tiny.
        first_ms = rng.randrange(2 * HOUR_MS)
        for visit in range(rng.randrange(1, 8)):
            at_ms = first_ms + visit * 3 * HOUR_MS + rng.randrange(HOUR_MS)
            payments.append((at_ms, card, Payment(rng.randrange(200, 60_000), country)))
    fraud: set[tuple[str, str]] = set()
    for number, rule in enumerate(("many_at_once", "two_countries", "small_then_large") * 4):
        card, at_ms = f"stolen-{number:02}", rng.randrange(20 * HOUR_MS)
        fraud.add((card, rule))
        if rule == "many_at_once":
            payments += [(at_ms + 5_000 * step, card, Payment(900, "NO")) for step in range(5)]
        elif rule == "two_countries":
            payments += [
                (at_ms, card, Payment(900, "NO")),
                (at_ms + MINUTE_MS, card, Payment(900, "PE")),
            ]
        else:
            payments += [
                (at_ms, card, Payment(50, "NO")),
                (at_ms + 30 * MINUTE_MS, card, Payment(80_000, "NO")),
            ]
    return sorted(payments, key=lambda one: one[0]), fraud


def demo() -> int:
    """Process a day in the test driver; return 0 if exactly the fraud is detected."""
    payments, fraud = sample_payments()
    with TopologyTestDriver(fraud_rules()) as driver:
        topic = driver.create_input_topic(PAYMENTS, key=STRING, value=PAYMENT)
        for at_ms, card, payment in payments:
            topic.pipe_input(card, payment, at_ms)
        alerts = driver.create_output_topic(ALERTS, key=STRING, value=ALERT).read_key_values()
        reports = driver.create_output_topic(REPORTS, key=STRING, value=LONG).read_key_values()
        stored = driver.get_state_store("history").approximate_num_entries()
    for card, alert in alerts:
        print(f"{card}  {alert.rule:16} {alert.cents / 100:8.2f}")
    found = {(card, alert.rule) for card, alert in alerts}
    cards = len({card for _, card, _ in payments})
    print(f"{len(payments)} payments, {len(alerts)} alerts, {len(reports)} lines of reports")
    print(f"{stored} of {cards} cards are still in the store")
    right = found == fraud and stored < cards
    print("exactly the fraud was detected" if right else f"WRONG: {found ^ fraud}")
    return 0 if right else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Detects fraud in payments.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; the three topics must exist on it")
    where.add_argument("--demo", action="store_true", help="generate the input, without a broker")
    options = parser.parse_args()
    if options.demo:
        return demo()
    config = StreamsConfig(
        application_id="fraud-rules",
        bootstrap_servers=options.bootstrap_servers,
        processing_guarantee="exactly_once_v2",
    )
    KafkaStreams(fraud_rules(), config).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
