"""Store builders: the names, kinds, serdes and options of a topology's stores.

`store_builder` contains the base class and the builder of key-value stores. The other kinds of
stores are in `window_builders` (windows and sessions), `versioned_builders` and `buffer_builders`
(internal stores of the DSL). `state/opening` opens the stores of a task.
"""
