"""The stream threads' Spark session, with its executors, slots and connectors."""
