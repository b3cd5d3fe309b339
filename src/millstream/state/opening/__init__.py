"""How a store is opened: the layers that its builder asks for are put above each other.

`by_kind` finds out how a builder's store is opened, `environment` is what a store finds in its task
and `open_store` what it becomes. `key_value_stores`, `window_stores`, `versioned_stores` and
`buffers` put the layers together; `lowest_layer` is what all of those have in common.
"""
