"""How changes of stores reach their changelog topics, and come back from them.

Every change of every kind of store goes through the `StoreChangelog` of that store (`changelog`).
`logged_store`, `logged_lru` and `logged_windows` are layers that hand it each write; stores that
log in a way of their own call it themselves. `restore` is the applying side. `record_at_hand` says
what stores must know of the record being processed.
"""
