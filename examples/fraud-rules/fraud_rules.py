"""Fraud rules: payments in; alerts, and a report of each hour, out.

    python examples/fraud-rules/fraud_rules.py --demo
    python examples/fraud-rules/fraud_rules.py --bootstrap-servers localhost:9092

Rules look at what a card has done lately, so each card has a short history in a store. A rule is a
function of a payment and that history. Calls by time do two things that no payment does: they
forget cards that have been quiet for long, and tell at the end of each hour how many alerts there
were. With --demo it needs neither Kafka nor Spark: it invents a day of payments with some fraud
among them, and checks that the rules have found just that.
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
#: What a card has done longer ago than this, no rule looks at.
REMEMBERED_MS = HOUR_MS


class Payment(msgspec.Struct, frozen=True):
    """With a card, whose number is the key."""

    cents: int
    country: str


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """A payment of the past."""

    at_ms: int
    cents: int
    country: str


class Alert(msgspec.Struct, frozen=True):
    """What is wrong with a payment."""

    rule: str
    cents: int


PAYMENT, HISTORY, ALERT = json_of(Payment), json_of(list[Seen]), json_of(Alert)


def many_at_once(now: Seen, before: Sequence[Seen]) -> bool:
    """The fifth payment within a minute."""
    return sum(each.at_ms > now.at_ms - MINUTE_MS for each in before) >= 4


def two_countries(now: Seen, before: Sequence[Seen]) -> bool:
    """Two countries within ten minutes."""
    lately = (each for each in before if each.at_ms > now.at_ms - 10 * MINUTE_MS)
    return any(each.country != now.country for each in lately)


def small_then_large(now: Seen, before: Sequence[Seen]) -> bool:
    """More than 500.00 after at most 1.00: somebody has tried whether the card works."""
    return now.cents > 50_000 and any(each.cents <= 100 for each in before)


RULES: Sequence[Callable[[Seen, Sequence[Seen]], bool]] = (
    many_at_once,
    two_countries,
    small_then_large,
)


class Judge(Processor[str, Payment, str, Alert]):
    """Puts each payment to the rules."""

    def init(self, context: ProcessorContext[str, Alert]) -> None:
        super().init(context)
        self.history: KeyValueStore[str, list[Seen]] = context.get_state_store("history")
        self.counts: KeyValueStore[str, int] = context.get_state_store("alerts-by-rule")
        # By stream time: the same payments give the same reports, whenever they are read.
        context.schedule(timedelta(hours=1), PunctuationType.STREAM_TIME, self.report)
        context.schedule(timedelta(hours=1), PunctuationType.STREAM_TIME, self.forget)

    def process(self, record: Record[str, Payment]) -> None:
        payment = record.value
        now = Seen(record.timestamp, payment.cents, payment.country)
        past = self.history.get(record.key) or []
        before = [each for each in past if each.at_ms > now.at_ms - REMEMBERED_MS]
        for rule in RULES:
            if rule(now, before):
                name = rule.__name__
                self.counts.put(name, (self.counts.get(name) or 0) + 1)
                self.context.forward(record.with_value(Alert(name, payment.cents)), "alerts")
        self.history.put(record.key, [*before, now])

    def report(self, stream_time_ms: int) -> None:
        """Tell how many alerts there were, and begin anew."""
        with self.counts.all() as found:
            counts = dict(found)
        for name, count in counts.items():
            self.context.forward(Record(name, Alert(name, count), stream_time_ms), "reports")
            self.counts.delete(name)

    def forget(self, stream_time_ms: int) -> None:
        """Cards that have been quiet for so long that no rule would look at what they did."""
        with self.history.all() as cards:
            quiet = [
                card for card, past in cards if past[-1].at_ms <= stream_time_ms - REMEMBERED_MS
            ]
        for card in quiet:
            self.history.delete(card)


def fraud_rules() -> Topology:
    """Payments in, alerts by card and reports by rule out."""
    builder = StreamsBuilder()
    builder.add_state_store(
        Stores.key_value_builder(Stores.persistent_key_value("history"), STRING, HISTORY)
    )
    builder.add_state_store(
        Stores.key_value_builder(Stores.persistent_key_value("alerts-by-rule"), STRING, LONG)
    )
    judged = builder.stream(PAYMENTS, key=STRING, value=PAYMENT).process(
        Judge, stores=["history", "alerts-by-rule"], name="judge"
    )
    judged.to(ALERTS, key=STRING, value=ALERT, name="alerts")
    judged.map_values(lambda report: report.cents, name="reports").to(
        REPORTS, key=STRING, value=LONG
    )
    return builder.build()


def invented() -> tuple[list[tuple[int, str, Payment]], set[tuple[str, str]]]:
    """A day of payments by their times, and which cards break which rules."""
    dice = random.Random(11)
    payments = []
    for number in range(300):
        card, country = f"card-{number:03}", dice.choice(("NO", "PE", "JP"))
        # Honest cards pay a few times a day, in one country, hours apart, never very little.
        first_ms = dice.randrange(2 * HOUR_MS)
        for visit in range(dice.randrange(1, 8)):
            at_ms = first_ms + visit * 3 * HOUR_MS + dice.randrange(HOUR_MS)
            payments.append((at_ms, card, Payment(dice.randrange(200, 60_000), country)))
    fraud = set()
    for number, rule in enumerate(("many_at_once", "two_countries", "small_then_large") * 4):
        card, at_ms = f"stolen-{number:02}", dice.randrange(20 * HOUR_MS)
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
    """Send a day through the rules; 0 if they have found what was put in."""
    payments, fraud = invented()
    with TopologyTestDriver(fraud_rules()) as driver:
        topic = driver.create_input_topic(PAYMENTS, key=STRING, value=PAYMENT)
        for at_ms, card, payment in payments:
            topic.pipe_input(card, payment, at_ms)
        alerts = driver.create_output_topic(ALERTS, key=STRING, value=ALERT).read_key_values()
        reports = driver.create_output_topic(REPORTS, key=STRING, value=LONG).read_key_values()
        remembered = driver.get_state_store("history").approximate_num_entries()
    for card, alert in alerts:
        print(f"{card}  {alert.rule:16} {alert.cents / 100:8.2f}")
    found = {(card, alert.rule) for card, alert in alerts}
    cards = len({card for _, card, _ in payments})
    print(f"{len(payments)} payments, {len(alerts)} alerts, {len(reports)} lines of reports")
    print(f"{remembered} of {cards} cards are still remembered")
    right = found == fraud and remembered < cards
    print("every fraud was found, and nothing else" if right else f"WRONG: {found ^ fraud}")
    return 0 if right else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Looks for fraud in payments.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; the three topics must exist on it")
    where.add_argument("--demo", action="store_true", help="invent the input, without a broker")
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
