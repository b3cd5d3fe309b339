"""Store builders: the names, kinds, serdes and options of the stores of a topology.

`store_builder` has the base class and the key-value stores; `window_builders` (and sessions),
`versioned_builders` and `buffer_builders` (internal stores of the DSL) are the other kinds of
stores. `state/opening` opens the stores in a task.
"""
