"""The clients that carry records, over librdkafka: consumers and producers.

`record_consumer` fetches records as columns per partition (`record_columns`): parallel lists of
keys, values, timestamps, offsets and headers. A `reader` makes them of message objects, or without
these by the C extension. `partition_ends` detects whether a partition was read to its end.

`record_producer` sends with a `writer`, record by record or as columns, and never waits for
acknowledgements before a flush. `delivery` keeps the first failure and the last acknowledged
offsets, and calls the handlers of rejected records outside of librdkafka's callbacks, before any
commit. `transactional_producer` adds transactions with input offsets, which `group_metadata`
fences by the member's generation.
"""
