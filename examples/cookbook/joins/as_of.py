"""As-of joins: the exchange rate at the time of the payment.

A table only has the current rate, so an application that reads last week's payments would convert
them at today's rate. A versioned store also keeps old rates, and a join with this store looks up
the rate that was valid at the timestamp of the payment. With `grace`, payments wait for rates that
arrive a little late.
"""

from __future__ import annotations

from datetime import timedelta

from millstream import Materialized, StreamsBuilder, Topology
from millstream.serdes import DOUBLE, STRING
from millstream.testing import TopologyTestDriver

HISTORY = timedelta(days=30)


def converted() -> Topology:
    """Convert payments to euros. Payments and rates are keyed by currency."""
    builder = StreamsBuilder()
    rates = builder.table(
        "rates",
        key=STRING,
        value=DOUBLE,
        store=Materialized("rates", kind="versioned", history_retention=HISTORY),
    )
    payments = builder.stream("payments", key=STRING, value=DOUBLE)
    (
        payments.join(
            rates, lambda amount, rate: round(amount * rate, 2), grace=timedelta(minutes=1)
        ).to("euros", key=STRING, value=DOUBLE)
    )
    return builder.build()


def test_payments_use_the_rate_of_their_time() -> None:
    hour = 3_600_000
    with TopologyTestDriver(converted()) as driver:
        rates = driver.create_input_topic("rates", key=STRING, value=DOUBLE)
        payments = driver.create_input_topic("payments", key=STRING, value=DOUBLE)
        rates.pipe_input("NOK", 0.09, timestamp=0)
        rates.pipe_input("NOK", 0.10, timestamp=10 * hour)
        payments.pipe_input("NOK", 100.0, timestamp=9 * hour)
        payments.pipe_input("NOK", 100.0, timestamp=11 * hour)
        payments.pipe_input("NOK", 1.0, timestamp=20 * hour)  # advances stream time
        euros = driver.create_output_topic("euros", key=STRING, value=DOUBLE)
        assert euros.read_values() == [9.0, 10.0]
