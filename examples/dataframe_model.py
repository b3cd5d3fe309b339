"""Detects unusual payments with a model in a pandas UDF.

The model runs between two stateful steps.

    python examples/dataframe_model.py --demo
    python examples/dataframe_model.py --bootstrap-servers localhost:9092

The topology aggregates the payments of each card, a pandas UDF of Spark scores thousands of
payments at a time, and the topology counts the alarms of each card. With --demo, the program
runs in the test driver without Kafka: Spark scores one batch, and every alarm is compared with
plain Python. The program requires pandas; Spark 4.2 requires a version below 3.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from millstream import KafkaStreams, Materialized, StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import DOUBLE, LONG, STRING, json_of
from millstream.testing import TopologyTestDriver

#: Stands for a trained model: a logistic regression with two features.
WEIGHTS, BIAS = np.array([2.0, 0.05]), -4.0
ALARM = 0.9


class History(msgspec.Struct):
    """The payments of a card: their number, their average, and the last amount."""

    count: int = 0
    mean: float = 0.0
    last: float = 0.0


def with_payment(card: str, amount: float, history: History) -> History:
    """Add a payment to a history. The mean excludes this payment."""
    count = history.count
    mean = amount if count == 0 else history.mean + (history.last - history.mean) / count
    return History(count + 1, mean, amount)


def score(mean: Any, last: Any, count: Any) -> Any:
    """Return how unusual payments are, from 0 to 1, for pandas columns or numbers."""
    features = WEIGHTS[0] * (last / mean - 1) + WEIGHTS[1] * np.minimum(count, 20)
    return 1 / (1 + np.exp(-(features + BIAS)))


def scores(mean: pd.Series, last: pd.Series, count: pd.Series) -> pd.Series:
    """Score columns of thousands of payments."""
    return score(mean, last, count)


def scored(histories: DataFrame) -> DataFrame:
    """Score the last payment of each card."""
    functions: Any = f
    model = functions.pandas_udf(scores, "double")
    columns = (f.col(f"value.{name}") for name in ("mean", "last", "count"))
    return histories.select("key", model(*columns).alias("value"), "timestamp")


def alarms() -> Topology:
    """Build a topology that counts the alarms of each card."""
    builder = StreamsBuilder()
    (
        builder.stream("payments", key=STRING, value=DOUBLE)
        .group_by_key()
        .aggregate(
            History,
            with_payment,
            # Without a cache, so that every payment is scored.
            store=Materialized("histories", key=STRING, value=json_of(History), caching=False),
        )
        .to_stream()
        .transform_dataframe(scored, value=DOUBLE, name="score")
        .filter(lambda card, score: score > ALARM)
        .group_by_key()
        .count(store="alarms")
        .to_stream()
        .to("alarms", key=STRING, value=LONG)
    )
    return builder.build()


def demo() -> int:
    """Run in the test driver; return 0 if every alarm is correct."""
    rng = random.Random(7)
    histories: dict[str, History] = {}
    expected: Counter[str] = Counter()
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    with TopologyTestDriver(alarms()) as driver:
        payments = driver.create_input_topic("payments", key=STRING, value=DOUBLE)
        for number in range(3_000):
            card = f"card-{rng.randrange(30)}"
            amount = rng.uniform(10, 20) * (8 if rng.random() < 0.02 else 1)
            payments.pipe_input(card, amount, timestamp=number)
            history = with_payment(card, amount, histories.get(card, History()))
            histories[card] = history
            expected[card] += int(score(history.mean, history.last, history.count) > ALARM)
        count = driver.run_dataframes(spark)
        out = driver.create_output_topic("alarms", key=STRING, value=LONG)
        found = out.read_key_values_to_map()
    spark.stop()
    if found != {card: times for card, times in expected.items() if times}:
        print(f"WRONG: {found}, expected {dict(expected)}")
        return 1
    print(f"Spark scored {count} payments, and every alarm of {len(found)} cards is correct")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts unusual payments.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; both topics must exist on it")
    where.add_argument("--demo", action="store_true", help="generate the input, without a broker")
    options = parser.parse_args()
    if options.demo:
        return demo()
    config = StreamsConfig(
        application_id="dataframe-model", bootstrap_servers=options.bootstrap_servers
    )
    KafkaStreams(alarms(), config).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
