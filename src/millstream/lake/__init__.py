"""Stores and streams as DataFrames of Spark: the data source `millstream`.

`register(spark)` makes a session know it. `read_store` and `read_changes` take serdes and settings
as objects; `KafkaStreams.dataframe` knows them from the topology.
"""

from millstream.lake.reading import position_of, register
from millstream.lake.snapshots import read_changes, read_store

__all__ = ["position_of", "read_changes", "read_store", "register"]
