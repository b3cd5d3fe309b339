"""What the user may say about windows, joins and how tables are kept.

`windows` and `join_windows` are spans of time, `materialized` is how a table is kept and
`materialized_windows` how one of windows is, `suppressed` is what `KTable.suppress` holds back.
"""
