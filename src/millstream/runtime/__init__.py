"""The loop: stream threads that poll Kafka, run tasks a batch at a time, and commit."""
