"""The Spark session that runs the stream threads, with its executors, slots and connectors."""
