"""State store queries in the stream thread: requests, and their answers between two batches.

`query_messages` are the requests and replies. `pending_queries` holds requests until the loop has
time, and reduces the batch size meanwhile. `store_queries` executes them; `store_positions`
determines which input a store reflects. Results longer than a page stay in `open_cursors`.
"""
