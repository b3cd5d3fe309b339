"""The settings of an application.

`streams_config` declares every setting of `StreamsConfig`, based on the classes in `fields`, which
`millstream.parallel.Properties` also uses. `client_settings` is the table of Kafka's client
settings and their support by librdkafka and kafka-python. `validation` checks combinations of
settings and parses `topology.optimization`. `java_properties` converts the dotted names of Java
applications.

Settings in files and environment variables: `config_file` reads TOML and properties files
(`properties_format`), `environment_variables` the environment, and `references` resolves references
to secrets. `given_values` merges these values by precedence and locates errors.
"""
