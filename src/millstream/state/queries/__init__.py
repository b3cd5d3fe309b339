"""Interactive queries of stores.

A query is *planned* (`codec`): its key is serialized, and it becomes a `ReadRequest` of bytes and
numbers (`read_requests`). The request is *read* from a store (`readers`, `store_reads`), which
returns pairs of bytes, in order. The caller *decodes* the pairs. `run_query` performs all steps for
a local store.
"""
