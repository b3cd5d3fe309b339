"""DataFrame functions of a topology: the queries of Structured Streaming that run them.

A stage reads an internal topic that stream threads write, and writes another that they read, or a
table of the lake. What runs in the driver is here; what runs in Spark's Python workers is
`rows.py` and `sending.py`.
"""
