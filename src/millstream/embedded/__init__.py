"""A real Kafka broker for development and tests: a tool, none of the clients."""
