"""Failed records: exception handlers, dead letters and rejected records.

`handler_results` calls handlers and validates their results; `dead_letters` sends theirs. Rejected
records reach `production_errors`, or `subscription_production` for a subscription's topics.
"""
