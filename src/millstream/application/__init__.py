"""What stands behind `KafkaStreams`: starting, supervising and stopping stream threads."""
