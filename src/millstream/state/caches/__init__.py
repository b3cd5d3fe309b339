"""Record caches: the latest values as objects, held back until a commit.

`record_cache` is the cache of a store. `cache_entries` defines its entries, their eviction order,
the result of a flush and the budget of a thread's caches; `cache_implementation` chooses between
Python and the C extension.
"""
