"""A real Kafka broker for development and tests: `embedded_kafka`, started in about two seconds.

Each broker (`node`) is a KRaft node, controller and broker in one, in a separate Java process. It
is reachable from this machine only, unless another `host` is given, and has a folder with an empty
log directory (`broker_home`), which is removed at the end: `orphan_guard` does so even after this
process was killed. `broker_settings` and `broker_security` write its settings.

The broker comes from Maven (`jars`), with a fix for exactly-once (`broker_patches`), and runs with
the Java that `java` finds; Spark and the command line use these two as well.
"""
