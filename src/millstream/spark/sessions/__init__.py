"""The Spark session that hosts the stream threads, and what it has to offer."""
