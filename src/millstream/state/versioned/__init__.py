"""Versioned stores.

`versioned_store` is the interface for processors, `versioned_table` that for the DSL's operators,
and `versions` stores the versions as bytes.
"""
