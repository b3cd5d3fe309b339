"""Consumers and producers of records, based on librdkafka.

`record_consumer` fetches records as columns per partition (`record_columns`): parallel lists of
keys, values, timestamps, offsets and headers. A `reader` creates them from message objects, or
without message objects with the C extension. `partition_ends` detects whether a partition was read
to its end.

`record_producer` sends with a `writer`, record by record or as columns, and waits for
acknowledgments only in a flush. `delivery` tracks the first failure and the last acknowledged
offsets, and calls the handlers of rejected records outside of librdkafka's callbacks, before any
commit. `transactional_producer` adds transactions with input offsets, which are fenced by the
member's generation (`group_metadata`).
"""
