"""The task assignors of Kafka Streams."""
