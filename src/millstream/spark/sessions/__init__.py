"""The Spark session that runs the stream threads, and its executors, slots and connectors."""
