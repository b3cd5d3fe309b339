"""The settings of the two Kafka libraries, converted from the user's settings.

`librdkafka_settings` converts the settings of all clients; `client_security`, `client_credentials`
and `tokens` handle logins. `java_options` is for Spark's Kafka connector. Settings that one of the
clients does not support are rejected, because they would fail later and with a less clear error.
"""
