"""The settings of the two Kafka libraries, from the user's settings under Kafka's names.

`librdkafka_settings` makes those of all clients; `client_security`, `client_credentials` and
`tokens` their logins. `java_options` are for Spark's Kafka connector. Settings that a client does
not support are rejected, because a setting that works for only half of the clients fails later and
less clearly.
"""
