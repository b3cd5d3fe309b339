"""Runs the DataFrame functions of a topology as Structured Streaming queries.

A stage reads an internal topic to which stream threads write. It writes either to another topic,
from which stream threads read, or to a lake table. To stream threads, both topics are ordinary
repartition topics.

A `stage_supervisor` in each driver takes part in the `election` of the driver that runs the stage,
and starts, monitors and restarts its `stage_query`. The election's group also stores the offsets up
to which the stage has processed its input; the supervisor deletes the records below these offsets.
`stage_plan` contains the names and serdes, and `topic_frames` converts between records and
DataFrames.

`row_conversion` and `kafka_writer` contain the code for Spark's Python workers; the rest runs in
the driver. Under exactly-once, each partition of a batch is written in one transaction, which
contains the batch's number. `real_time` and `sql_codecs` run stages without Python, in Spark's
real-time mode.

`lake` writes batches to lake tables exactly once, and reads a table as the history of a topic.
"""
