"""The settings of an application.

`streams_config` declares every setting of `StreamsConfig`; `fields` is the machinery of such
declarations, which `millstream.parallel.Properties` uses, too. `client_settings` is the table of
Kafka's client settings and how librdkafka and kafka-python support them. `validation` checks
settings against each other and parses `topology.optimization`; `java_properties` converts the
dotted names of Java applications.
"""
