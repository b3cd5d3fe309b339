"""Input queues of a task: records that are fetched but not processed, and offsets in flight.

A `record_queue` holds the `raw_records` of a partition, `partition_group` chooses the next batch
among partitions, and `pending_offsets` determines what may be committed.
"""
