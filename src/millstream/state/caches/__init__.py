"""Record caches, which hold the latest values as objects until they are flushed.

`record_cache` is the cache of a store. `cache_entries` defines its entries, their eviction order,
the result of a flush and the budget of a thread's caches; `cache_implementation` selects Python or
the C extension.
"""
