"""As of a time: the exchange rate of the moment of the payment, not of the moment of processing.

A plain table knows the newest rate only: an application that reads last week's payments would take
today's. A versioned store keeps the rates of the past, and a join with it looks up the one that was
valid at the payment's own timestamp. With `grace` payments wait for rates that come a little late.
"""

from __future__ import annotations

from datetime import timedelta

from millstream import Materialized, StreamsBuilder, Topology
from millstream.serdes import DOUBLE, STRING
from millstream.testing import TopologyTestDriver

PAST = timedelta(days=30)


def converted() -> Topology:
    """Payments (an amount by currency) and rates in, amounts in euros out."""
    builder = StreamsBuilder()
    rates = builder.table(
        "rates",
        key=STRING,
        value=DOUBLE,
        store=Materialized("rates", kind="versioned", history_retention=PAST),
    )
    payments = builder.stream("payments", key=STRING, value=DOUBLE)
    (
        payments.join(
            rates, lambda amount, rate: round(amount * rate, 2), grace=timedelta(minutes=1)
        ).to("euros", key=STRING, value=DOUBLE)
    )
    return builder.build()


def test_the_rate_of_the_time_counts() -> None:
    hour = 3_600_000
    with TopologyTestDriver(converted()) as driver:
        rates = driver.create_input_topic("rates", key=STRING, value=DOUBLE)
        payments = driver.create_input_topic("payments", key=STRING, value=DOUBLE)
        rates.pipe_input("NOK", 0.09, timestamp=0)
        rates.pipe_input("NOK", 0.10, timestamp=10 * hour)
        payments.pipe_input("NOK", 100.0, timestamp=9 * hour)
        payments.pipe_input("NOK", 100.0, timestamp=11 * hour)
        payments.pipe_input("NOK", 1.0, timestamp=20 * hour)  # moves time on
        euros = driver.create_output_topic("euros", key=STRING, value=DOUBLE)
        assert euros.read_values() == [9.0, 10.0]
