"""The clients that carry records, over librdkafka: consumers and producers."""
