"""Which process gets which tasks: the assignors of Kafka Streams."""
