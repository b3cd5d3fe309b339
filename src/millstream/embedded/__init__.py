"""Real Kafka brokers for development and tests (`embedded_kafka`).

A broker starts in about two seconds. Each broker (`node`) is a KRaft node, both controller and
broker, in a separate Java process. Brokers are only reachable from this machine, unless another
`host` is configured. Each broker has a folder with an initially empty log directory
(`broker_home`), which is removed at the end; `orphan_guard` removes it even if this process was
killed. `broker_settings` and `broker_security` create the settings of a broker.

The broker comes from Maven (`jars`), with a fix for exactly-once (`broker_patches`), and runs with
the Java that `java` finds. Spark and the command line also use `jars` and `java`.
"""
