"""Stores to be, as a topology describes them: names, kinds, serdes, options; nothing opened yet.

`store_builder` is what all have in common; `key_value`, `windows` (and sessions), `versioned`, and
`buffers` (the DSL's own stores) are the kinds. `state/opening` opens them in a task.
"""
