"""Asks a small neural network about every record, with numpy, many records at a time.

    python examples/map_batches_numpy.py --demo
    python examples/map_batches_numpy.py --bootstrap-servers localhost:9092

A value is 64 floats of 32 bits; the network makes a score of them. numpy needs as long for one
record as for a hundred, so `map_batches` hands it many, and numpy sees the memory of the Arrow
column without a copy. With --demo it needs no Kafka: it brings a broker along, scores records one
by one and in batches, compares the scores, and tells the speed-up.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pyarrow as pa

from millstream import KafkaStreams, StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import BYTES, DOUBLE, STRING

FEATURES = 64

# In place of a network that was trained: what it expects of features, its layers, and its output.
_dice = np.random.default_rng(7)
MEAN, SPREAD = _dice.normal(size=(2, FEATURES)).astype(np.float32) ** 2 + 0.5
LAYERS = _dice.normal(scale=FEATURES**-0.5, size=(3, FEATURES, FEATURES)).astype(np.float32)
OUTPUT = _dice.normal(scale=FEATURES**-0.5, size=FEATURES).astype(np.float32)


def scores(features: Any) -> Any:
    """The scores of rows of features."""
    signals = (features - MEAN) / SPREAD
    for layer in LAYERS:
        signals = np.maximum(signals @ layer, 0)
    return 1 / (1 + np.exp(-(signals @ OUTPUT)))


def scores_of_batch(batch: pa.RecordBatch) -> Any:
    """The scores of a batch with the features in its one column."""
    memory = batch["value"].buffers()[1]
    return scores(np.frombuffer(memory, dtype=np.float32).reshape(batch.num_rows, FEATURES))


def score_of_one(value: bytes) -> float:
    """The score of one record."""
    return float(scores(np.frombuffer(value, dtype=np.float32)))


def in_batches(input_topic: str = "features", output_topic: str = "scores") -> Topology:
    """Features in, scores out."""
    builder = StreamsBuilder()
    (
        builder.stream(input_topic, key=STRING, value=BYTES)
        # All of one length, so that they lie one behind the other.
        .map_batches(scores_of_batch, schema=pa.binary(4 * FEATURES), max_records=2_000)
        .to(output_topic, key=STRING, value=DOUBLE)
    )
    return builder.build()


def one_by_one(input_topic: str, output_topic: str) -> Topology:
    """The same without batches."""
    builder = StreamsBuilder()
    features = builder.stream(input_topic, key=STRING, value=BYTES)
    features.map_values(score_of_one).to(output_topic, key=STRING, value=DOUBLE)
    return builder.build()


def main() -> int:
    parser = argparse.ArgumentParser(description="Scores records with numpy.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; both topics must exist on it")
    where.add_argument("--demo", action="store_true", help="bring broker and records along")
    options = parser.parse_args()
    if options.demo:
        from map_batches_numpy_demo import Demo

        ways = {"one by one": one_by_one, "in batches": in_batches}
        return Demo(ways, FEATURES, scores).run()
    config = StreamsConfig(
        application_id="map-batches-numpy", bootstrap_servers=options.bootstrap_servers
    )
    KafkaStreams(in_batches(), config).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
