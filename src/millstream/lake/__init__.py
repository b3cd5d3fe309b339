"""Stores as Spark DataFrames (the data source `millstream`), and lake tables.

`register(spark)` registers the data source in a session. `read_store` and `read_changes` take
serdes and settings as objects; `KafkaStreams.dataframe` takes them from the topology.

Reading does not involve the application. A `ReadPlan` describes the topic with the store's content
(`store_table`). The `data_source` uses the current end offsets as the position (`changelogs`),
converts filters to keys and windows (`row_filters`), reads each partition in a task, and keeps the
last record of each key (`latest_by_key`). `store_content` applies the rules of the stores, and
`store_rows` decodes the result. Only `owners` queries the running application.

For lake tables, `spark_settings` returns the session settings for a format, `read_table` reads a
table that `to_lake` has written, and `backfill` makes the rows of a table the history of a topic.
"""

from millstream.dataframes.lake.lake_tables import read_table
from millstream.lake import requirements as requirements
from millstream.lake.backfill import Backfilled, backfill
from millstream.lake.read_dataframe import (
    position_of,
    read_changes,
    read_store,
    register,
    spark_settings,
)

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
