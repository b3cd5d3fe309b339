"""The bytes in which members and their leader talk, those of Kafka Streams."""
