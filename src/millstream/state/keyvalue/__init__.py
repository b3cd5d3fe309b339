"""Key-value stores, and the base classes of all store interfaces.

`key_value_store` is the interface for processors, `key_value_table` the one for the DSL's
operators. `TypedStore` (`typed_store`) and `EncodedTable` (`key_value_table`) are the base classes
of these two kinds of interfaces.
"""
