"""State store queries on a stream thread, which answers them between batches.

`query_messages` contains the requests and replies. `pending_queries` queues requests until the loop
has time, and reduces the batch size in the meantime. `store_queries` executes the requests;
`store_positions` determines which input a store reflects. `open_cursors` contains the cursors of
results that are longer than a page.
"""
