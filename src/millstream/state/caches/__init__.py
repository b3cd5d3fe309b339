"""Record caches: the latest values as objects, held back until a commit.

`record_cache` is the cache of a store; `cache_entries` what is in it, what a flush gives and what
the caches of a thread may take; `eviction` which entries go first.
"""
