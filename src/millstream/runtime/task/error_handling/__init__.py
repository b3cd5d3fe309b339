"""Failed records: exception handlers, dead letters and rejected records.

`handler_results` calls the handlers and validates their results; `dead_letters` sends their dead
letters. `production_errors` handles rejected records; `subscription_production` handles rejected
records of a subscription's topics.
"""
