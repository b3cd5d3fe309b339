"""What each of the two Kafka libraries is told."""
