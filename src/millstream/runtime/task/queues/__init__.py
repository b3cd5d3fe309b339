"""The input queues of a task: unprocessed records, and offsets in flight.

A `record_queue` holds the `raw_records` of a partition, `partition_group` chooses the next batch
among partitions, and `pending_offsets` determines the committable offset.
"""
