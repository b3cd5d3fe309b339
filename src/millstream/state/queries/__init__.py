"""Reading stores for queries: from what is asked, by way of bytes, to what is answered.

A query is *planned* (`codec`): its key is serialized, and it becomes a `Read`, which is plain bytes
and numbers. A store *reads* (`readers`): pairs of bytes in order. The pairs are *decoded* where the
query was asked. `run` does all of it at once, for a store at hand.
"""
