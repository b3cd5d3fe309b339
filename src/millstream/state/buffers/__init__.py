"""Stores of the DSL's own: what operators hold back or remember of each other.

`time_ordered_buffer` is that of suppress, `grace_buffer` that of a stream-table join with grace,
whose records are `buffer_value`s; `outer_join_store` has records without a partner,
`subscription_store` the subscriptions of a foreign-key join.
"""
