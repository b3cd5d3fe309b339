"""Stores and streams as DataFrames of Spark: the data source `millstream`.

`register(spark)` makes a session know it. `read_store` and `read_changes` take serdes and settings
as objects; `KafkaStreams.dataframe` knows them from the topology.

Tables of the lake: `spark_settings` tells what a session of the user's needs for a format,
`read_table` reads what `to_lake` has written, and `backfill` puts its rows before a topic.
"""

from millstream.lake.backfill import Backfilled, backfill
from millstream.lake.reading import position_of, register
from millstream.lake.settings import spark_settings
from millstream.lake.snapshots import read_changes, read_store
from millstream.structured.lake.tables import read_table

__all__ = [
    "Backfilled",
    "backfill",
    "position_of",
    "read_changes",
    "read_store",
    "read_table",
    "register",
    "spark_settings",
]
