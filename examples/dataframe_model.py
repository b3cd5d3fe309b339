"""Which payments look odd? A model in a pandas UDF of Spark, between two stateful steps.

    python examples/dataframe_model.py --demo
    python examples/dataframe_model.py --bootstrap-servers localhost:9092

The topology keeps what each card usually pays, Spark scores each payment against that by a pandas
UDF, thousands at a time, and the topology counts the alarms of each card. With --demo it needs no
Kafka: the test driver feeds it, Spark scores one batch, and every alarm is checked against plain
Python. It needs pandas beside Millstream, below 3 for Spark 4.2.
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

#: In place of a model that was trained: a logistic regression on two features.
WEIGHTS, BIAS = np.array([2.0, 0.05]), -4.0
ALARM = 0.9


class Habit(msgspec.Struct):
    """What a card has paid: how often, how much on average, and the last time."""

    count: int = 0
    mean: float = 0.0
    last: float = 0.0


def paid(card: str, amount: float, habit: Habit) -> Habit:
    """The habit after one more payment; the mean is that of the payments before it."""
    seen = habit.count
    mean = amount if seen == 0 else habit.mean + (habit.last - habit.mean) / seen
    return Habit(seen + 1, mean, amount)


def odds(mean: Any, last: Any, count: Any) -> Any:
    """How odd payments are, from 0 to 1: columns of pandas, or numbers."""
    features = WEIGHTS[0] * (last / mean - 1) + WEIGHTS[1] * np.minimum(count, 20)
    return 1 / (1 + np.exp(-(features + BIAS)))


def scores(mean: pd.Series, last: pd.Series, count: pd.Series) -> pd.Series:
    """The model over columns of some thousand payments."""
    return odds(mean, last, count)


def scored(habits: DataFrame) -> DataFrame:
    """How odd each card's last payment is."""
    functions: Any = f
    model = functions.pandas_udf(scores, "double")
    columns = (f.col(f"value.{name}") for name in ("mean", "last", "count"))
    return habits.select("key", model(*columns).alias("value"), "timestamp")


def alarms() -> Topology:
    """Payments by card in, how many alarms each card had out."""
    builder = StreamsBuilder()
    (
        builder.stream("payments", key=STRING, value=DOUBLE)
        .group_by_key()
        .aggregate(
            Habit,
            paid,
            # Each payment is scored, so no change is left out by a cache.
            store=Materialized("habits", key=STRING, value=json_of(Habit), caching=False),
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
    """0 if every alarm is right."""
    dice = random.Random(7)
    habits: dict[str, Habit] = {}
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
            card = f"card-{dice.randrange(30)}"
            amount = dice.uniform(10, 20) * (8 if dice.random() < 0.02 else 1)
            payments.pipe_input(card, amount, timestamp=number)
            habit = habits[card] = paid(card, amount, habits.get(card, Habit()))
            expected[card] += int(odds(habit.mean, habit.last, habit.count) > ALARM)
        count = driver.run_dataframes(spark)
        out = driver.create_output_topic("alarms", key=STRING, value=LONG)
        found = out.read_key_values_to_map()
    spark.stop()
    if found != {card: times for card, times in expected.items() if times}:
        print(f"WRONG: {found}, expected {dict(expected)}")
        return 1
    print(f"Spark scored {count} payments; every alarm of {len(found)} cards is right")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts odd payments.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; both topics must exist on it")
    where.add_argument("--demo", action="store_true", help="bring records along")
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
