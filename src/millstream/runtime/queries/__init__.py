"""State store queries on a stream thread, which answers them between batches.

`query_messages` contains the requests and replies. `pending_queries` holds requests until the loop
has time, and reduces the batch size in the meantime. `store_queries` executes them;
`store_positions` determines which input a store reflects. `open_cursors` holds the rest of results
that are longer than a page.
"""
