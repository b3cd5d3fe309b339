"""Stream threads that come and go with the load."""
