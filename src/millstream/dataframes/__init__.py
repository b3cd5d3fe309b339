"""Runs the DataFrame functions of a topology as Structured Streaming queries.

A stage reads an internal topic that stream threads write, and writes another topic that they read,
or a lake table. To stream threads, both are ordinary repartition topics.

A `stage_supervisor` in each driver takes part in the `election` of the driver that runs the stage,
and starts, monitors and restarts its `stage_query`. The election's group also stores the offsets up
to which the stage has processed its input; the supervisor deletes the records below them.
`stage_plan` has the names and serdes, `topic_frames` makes DataFrames of records and back.

`row_conversion` and `kafka_writer` contain the code for Spark's Python workers; the rest runs in
the driver. Under exactly-once, each partition of a batch is a transaction with the batch's number.
`real_time` and `sql_codecs` run stages without Python, in Spark's real-time mode.

`lake` writes batches to lake tables exactly once, and reads a table as the history of a topic.
"""
