"""Key-value stores, and what stores of all kinds have in common above the bytes.

`store` is what processors see, `table` what the DSL's operators use. `typed_store` and
`encoded_table` are what these two have in common with those of the other kinds.
"""
