"""The DSL's internal stores: buffers and join state.

`time_ordered_buffer` is the buffer of `suppress`, `grace_buffer` that of a stream-table join with
grace; `buffer_value` serializes their records. `join_stores` contains the stores for the unmatched
records of a stream-stream join and for the subscriptions of a foreign-key join.
"""
