"""Interactive queries of stores: from a query, via bytes, to its result.

A query is *planned* (`codec`): its key is serialized, and it becomes a `ReadRequest` of bytes and
numbers (`read_requests`). A store *reads* it (`readers`, `store_reads`) and returns pairs of
bytes, in order. The caller *decodes* the pairs. `run_query` does all of this for a local store.
"""
