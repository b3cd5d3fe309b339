"""Stream aggregations by key, window and session."""
