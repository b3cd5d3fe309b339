"""Scores batches of records with a small neural network in numpy.

    python examples/map_batches_numpy.py --demo
    python examples/map_batches_numpy.py --bootstrap-servers localhost:9092

A value consists of 64 floats of 32 bits, from which the network computes a score. numpy takes as
long for one record as for a hundred, so `map_batches` passes many records at a time, and numpy uses
the memory of the Arrow column without a copy. With --demo, the program starts a broker, scores
records one by one and in batches, compares the scores, and prints the speedup.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pyarrow as pa

from millstream import KafkaStreams, StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import BYTES, DOUBLE, STRING

FEATURES = 64

# Stands for a trained network: the distribution of the features, the layers, and the output.
_rng = np.random.default_rng(7)
MEAN, SPREAD = _rng.normal(size=(2, FEATURES)).astype(np.float32) ** 2 + 0.5
LAYERS = _rng.normal(scale=FEATURES**-0.5, size=(3, FEATURES, FEATURES)).astype(np.float32)
OUTPUT = _rng.normal(scale=FEATURES**-0.5, size=FEATURES).astype(np.float32)


def scores(features: Any) -> Any:
    """Return the scores of rows of features."""
    signals = (features - MEAN) / SPREAD
    for layer in LAYERS:
        signals = np.maximum(signals @ layer, 0)
    return 1 / (1 + np.exp(-(signals @ OUTPUT)))


def scores_of_batch(batch: pa.RecordBatch) -> Any:
    """Return the scores of a batch with a single column of features."""
    memory = batch["value"].buffers()[1]
    return scores(np.frombuffer(memory, dtype=np.float32).reshape(batch.num_rows, FEATURES))


def score_of_record(value: bytes) -> float:
    """Return the score of one record."""
    return float(scores(np.frombuffer(value, dtype=np.float32)))


def in_batches(input_topic: str = "features", output_topic: str = "scores") -> Topology:
    """Build a topology that scores batches of features."""
    builder = StreamsBuilder()
    (
        builder.stream(input_topic, key=STRING, value=BYTES)
        # All values have the same length, so they are contiguous in memory.
        .map_batches(scores_of_batch, schema=pa.binary(4 * FEATURES), max_records=2_000)
        .to(output_topic, key=STRING, value=DOUBLE)
    )
    return builder.build()


def one_by_one(input_topic: str, output_topic: str) -> Topology:
    """Build a topology that scores features one by one."""
    builder = StreamsBuilder()
    features = builder.stream(input_topic, key=STRING, value=BYTES)
    features.map_values(score_of_record).to(output_topic, key=STRING, value=DOUBLE)
    return builder.build()


def main() -> int:
    parser = argparse.ArgumentParser(description="Scores records with numpy.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; both topics must exist on it")
    where.add_argument("--demo", action="store_true", help="start a broker, and check the results")
    options = parser.parse_args()
    if options.demo:
        from map_batches_numpy_demo import Demo

        topologies = {"one by one": one_by_one, "in batches": in_batches}
        return Demo(topologies, FEATURES, scores).run()
    config = StreamsConfig(
        application_id="map-batches-numpy", bootstrap_servers=options.bootstrap_servers
    )
    KafkaStreams(in_batches(), config).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
