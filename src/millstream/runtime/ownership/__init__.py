"""Which work is whose: active, standby, restoring, given up."""
