"""The settings of an application: Kafka Streams' settings in snake_case."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from millstream.config.client_settings import Role, client_setting_advice, merged_client_settings
from millstream.config.config_file import read_config_file
from millstream.config.environment_variables import PREFIX, read_environment
from millstream.config.fields import (
    PathSetting,
    ServersSetting,
    Settings,
    ThreadsSetting,
    bounds_of,
    setting,
)
from millstream.config.given_values import settings_of
from millstream.config.java_properties import read_properties
from millstream.config.validation import check_together
from millstream.errors import ConfigError

__all__ = ["AT_LEAST_ONCE", "EXACTLY_ONCE_V2", "StreamsConfig"]

AT_LEAST_ONCE: Final = "at_least_once"
EXACTLY_ONCE_V2: Final = "exactly_once_v2"

_EXACTLY_ONCE_COMMIT_INTERVAL_MS: Final = 100

_UPGRADE: Final = "Millstream has no older protocol to upgrade from."
_WINDOWED: Final = "it configures Java's windowed deserializers; see serdes.time_windowed."
_LIST_SERDE: Final = "use millstream.serdes.list_of(inner) as the default serde."


#: Arguments of Faust, Quix Streams and kafka-python, with their counterparts.
_FOREIGN_ARGUMENTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("broker", "brokers", "broker_address", "bootstrap_server", "servers"),
        'Write bootstrap_servers="host:port".',
    ),
    **dict.fromkeys(
        ("id", "app_id", "consumer_group", "group"),
        "Write application_id=, which is also the id of the consumer group.",
    ),
    **dict.fromkeys(
        ("key_serializer", "value_serializer", "serializer", "key_deserializer"),
        "Write default_key_serde= and default_value_serde=, or key= and value= of each topic.",
    ),
    **dict.fromkeys(
        ("consumer_extra_config", "consumer_config"), "Write consumer={'auto.offset.reset': ...}."
    ),
    **dict.fromkeys(
        ("producer_extra_config", "producer_config"), "Write producer={'compression.type': ...}."
    ),
}


def _default_state_dir() -> str:
    """Return Kafka Streams' default, a folder in the temporary folder."""
    try:
        return str(Path(tempfile.gettempdir()) / "kafka-streams")
    except FileNotFoundError:
        # No temporary folder is writable, but the program may set a writable `state_dir`.
        return "/tmp/kafka-streams"


class StreamsConfig(Settings):
    """The settings of one application. Frozen. Has every Kafka Streams 4.3 setting.

    Durations, whose names end in `_ms`, are whole milliseconds (int, not timedelta). Serdes,
    handlers and extractors are objects. The dictionaries at the end contain settings of the Kafka
    clients with Kafka's dotted names. The more specific dictionary takes precedence:
    `main_consumer` over `consumer` over `clients`.

    Raises:
        ConfigError: a setting is unknown, missing, out of range, contradicts another setting, or is
            not supported by one of the two Kafka libraries.

    Example:
        >>> config = StreamsConfig(application_id="shop", bootstrap_servers="localhost:9092")
        >>> config.commit_interval_ms
        30000
        >>> config.processing_guarantee == AT_LEAST_ONCE
        True
        >>> config.replace(processing_guarantee=EXACTLY_ONCE_V2).commit_interval_ms
        100
    """

    # Required settings.
    application_id: str = setting(
        doc="The consumer group id, and the prefix of internal topics, client ids and state "
        "directories."
    )
    bootstrap_servers: ServersSetting = setting(
        doc="Bootstrap brokers as host:port, separated by commas or in a list.", kind="servers"
    )

    # Threads, tasks and time.
    num_stream_threads: ThreadsSetting = setting(
        default=1,
        minimum=1,
        doc="Number of stream threads (Spark tasks), or a pair (minimum, maximum) for autoscaling, "
        "written as 1-8 in properties files.",
        kind="threads",
    )
    processing_guarantee: str = setting(
        default=AT_LEAST_ONCE,
        choices=(AT_LEAST_ONCE, EXACTLY_ONCE_V2),
        doc="Whether results may be repeated after a failure.",
    )
    commit_interval_ms: int = setting(
        default=30_000,
        minimum=0,
        doc="Milliseconds between commits; 100 by default under exactly_once_v2. 0 commits after "
        "each loop iteration.",
    )
    poll_ms: int = setting(default=100, minimum=0, doc="Maximum time a thread waits for records.")
    max_task_idle_ms: int = setting(
        default=0,
        minimum=-1,
        doc="How long a task with an empty input partition waits for records that have not been "
        "written yet. 0 waits only for records that the broker already has; -1 does not wait.",
    )
    task_timeout_ms: int = setting(
        default=300_000,
        minimum=0,
        doc="How long failing requests to the cluster are retried, from the first failure; 0 for "
        "no retries. The duration of one attempt depends on the timeouts of the clients. A task "
        "waits at least 30 seconds for a state directory that another process has locked.",
    )
    buffered_records_per_partition: int = setting(
        default=1_000,
        minimum=1,
        doc="Number of buffered records at which a partition is paused.",
    )
    client_id: str = setting(
        default="", doc="Prefix of the names of threads and clients; generated by default."
    )
    application_server: str = setting(
        default="", doc="This instance's address, host:port, for queries by other instances."
    )
    group_protocol: str = setting(
        default="classic",
        choices=("classic", "streams"),
        unsupported="the group's leader assigns tasks, which requires the classic protocol.",
        doc="The protocol of the consumer group.",
    )

    # State.
    state_dir: PathSetting = setting(
        default=_default_state_dir(),
        doc="Parent of the state directories. ${NAME} is replaced by the environment variable "
        "NAME of the host.",
        kind="path",
    )
    dataframe_checkpoint_dir: str | None = setting(
        default=None,
        doc="The location of the checkpoints of DataFrame functions: a folder or a URL that "
        "all drivers can access; None for a folder in `state_dir`.",
        kind="str",
    )
    num_standby_replicas: int = setting(
        default=0, minimum=0, doc="Number of standby tasks of each stateful task, on other hosts."
    )
    max_warmup_replicas: int = setting(
        default=2, minimum=1, doc="Maximum number of warmup tasks, in addition to the standbys."
    )
    acceptable_recovery_lag: int = setting(
        default=10_000,
        minimum=0,
        doc="Maximum lag, in changelog records, at which a copy of the state counts as caught up.",
    )
    probing_rebalance_interval_ms: int = setting(
        default=600_000,
        minimum=60_000,
        doc="How often a rebalance checks whether warmup tasks have caught up.",
    )
    statestore_cache_max_bytes: int = setting(
        default=10_485_760,
        minimum=0,
        aliases=("cache.max.bytes.buffering",),
        doc="Total size of the record caches, divided among the threads; 0 disables caching.",
    )
    statestore_uncommitted_max_bytes: int = setting(
        default=67_108_864,
        minimum=-1,
        doc="Maximum size of uncommitted writes to persistent stores, divided among the "
        "threads. A thread that exceeds its share commits before its next batch. -1 for no limit.",
    )
    state_cleanup_delay_ms: int = setting(
        default=600_000, minimum=0, doc="How long the state directory of a migrated task is kept."
    )
    state_cleanup_dir_max_age_ms: int = setting(
        default=-1,
        minimum=-1,
        doc="Task directories that were not modified for longer than this are removed at the "
        "start; -1 removes none.",
    )
    allow_os_group_write_access: bool = setting(
        default=False, doc="Whether the group of the state directory may write to it."
    )
    default_dsl_store: Literal["rocksdb", "in_memory"] = setting(
        default="rocksdb", choices=("rocksdb", "in_memory"), doc="The type of the DSL's stores."
    )
    dsl_store_suppliers_class: Any = setting(
        default=None,
        kind="object",
        unsupported="choose with default_dsl_store, or per operator with Materialized.",
        doc="Java's factory of the DSL's stores.",
    )
    dsl_store_format: str = setting(
        default="DEFAULT",
        choices=("DEFAULT", "HEADERS"),
        unsupported="stores do not keep record headers.",
        doc="The format of stored values.",
    )
    rocksdb_config_setter: Any = setting(
        default=None,
        kind="object",
        doc="A function that is called with (store_name, options, config) before each RocksDB "
        "store is opened, to change its rocksdict.Options; or a class with a method set_config.",
    )
    windowstore_changelog_additional_retention_ms: int = setting(
        default=86_400_000,
        minimum=0,
        doc="Milliseconds to add to the retention of changelogs of windowed stores.",
    )

    # Topics.
    replication_factor: int = setting(
        default=-1, minimum=-1, doc="Replicas of internal topics; -1 is the broker's default."
    )
    repartition_purge_interval_ms: int = setting(
        default=30_000, minimum=0, doc="How often consumed repartition records are deleted."
    )
    topology_optimization: str = setting(
        default="none", doc="none, all, or names of Kafka Streams' optimizations."
    )
    ensure_explicit_internal_resource_naming: bool = setting(
        default=False, doc="Whether internal topics and stores need explicit names."
    )

    # Serdes, extractors, handlers.
    default_key_serde: Any = setting(
        default=None, kind="object", doc="Serde for keys where the topology specifies none."
    )
    default_value_serde: Any = setting(
        default=None, kind="object", doc="Serde for values where the topology specifies none."
    )
    default_list_key_serde_inner: Any = setting(
        default=None, kind="object", unsupported=_LIST_SERDE, doc="Java's list serde for keys."
    )
    default_list_key_serde_type: Any = setting(
        default=None, kind="object", unsupported=_LIST_SERDE, doc="Java's list type for keys."
    )
    default_list_value_serde_inner: Any = setting(
        default=None, kind="object", unsupported=_LIST_SERDE, doc="Java's list serde for values."
    )
    default_list_value_serde_type: Any = setting(
        default=None, kind="object", unsupported=_LIST_SERDE, doc="Java's list type for values."
    )
    default_timestamp_extractor: Callable[[Any, int], int] | None = setting(
        default=None,
        kind="object",
        doc="A function (record, partition_time) that returns the timestamp of a record. By "
        "default, this is the record's timestamp, and a negative timestamp is an error.",
    )
    deserialization_exception_handler: Any = setting(
        default=None,
        kind="object",
        aliases=("default.deserialization.exception.handler",),
        doc="Called when a record cannot be deserialized. The default logs and fails.",
    )
    processing_exception_handler: Any = setting(
        default=None, kind="object", doc="Called when user code fails. The default logs and fails."
    )
    processing_exception_handler_global_enabled: bool = setting(
        default=False,
        doc="Whether `processing_exception_handler` is also called for global stores.",
    )
    production_exception_handler: Any = setting(
        default=None,
        kind="object",
        aliases=("default.production.exception.handler",),
        doc="Called when a record cannot be serialized for a sink or Kafka rejects it. By default, "
        "retriable errors are retried, and other errors fail.",
    )
    errors_dead_letter_queue_topic_name: str | None = setting(
        default=None, doc="The topic to which the built-in handlers send skipped records."
    )
    processor_wrapper_class: Any = setting(
        default=None,
        kind="object",
        unsupported="processors are wrapped when a topology is built: "
        "StreamsBuilder(processor_wrapper=...), Topology(processor_wrapper=...).",
        doc="Java's class that wraps processors.",
    )

    # Assignment.
    task_assignor_class: Any = setting(
        default=None,
        kind="object",
        doc="A task assignor to replace the high-availability assignor: a function or a class.",
    )
    rack_aware_assignment_strategy: str = setting(
        default="none",
        choices=("none", "min_traffic", "balance_subtopology"),
        doc="Whether tasks are placed near the replicas of their partitions.",
    )
    rack_aware_assignment_traffic_cost: int | None = setting(
        "rack.aware.assignment.traffic_cost",
        default=None,
        kind="int",
        minimum=0,
        doc="Cost of reading a partition from another rack; by default 10.",
    )
    rack_aware_assignment_non_overlap_cost: int | None = setting(
        "rack.aware.assignment.non_overlap_cost",
        default=None,
        kind="int",
        minimum=0,
        doc="Cost of moving a task; by default 1.",
    )
    rack_aware_assignment_tags: tuple[str, ...] = setting(
        default=(), doc="Client tags over which standbys are spread."
    )
    client_tags: Mapping[str, str] = setting(
        "client.tag",
        default={},
        doc="This instance's tags, such as {'zone': 'a'} (Kafka's client.tag.zone). The "
        "environment variable MILLSTREAM_CLIENT_TAG_ZONE of a host takes precedence.",
    )
    upgrade_from: str | None = setting(
        default=None, unsupported=_UPGRADE, doc="Java's switch for rolling upgrades."
    )

    # Metrics and logging.
    metrics_recording_level: str = setting(
        default="INFO",
        choices=("INFO", "DEBUG", "TRACE"),
        doc="The level of detail of the metrics.",
    )
    metrics_num_samples: int = setting(
        default=2, minimum=1, doc="Number of samples for a rate or an average."
    )
    metrics_sample_window_ms: int = setting(
        default=30_000, minimum=1, doc="Length of a sample window."
    )
    metric_reporters: tuple[str, ...] = setting(
        default=("org.apache.kafka.common.metrics.JmxReporter",),
        unsupported="reporters are Java classes; read streams.metrics().",
        doc="Java's metric reporters.",
    )
    built_in_metrics_version: str = setting(
        default="latest", choices=("latest",), doc="The version of the metric names."
    )
    metrics_port: int | None = setting(
        default=None,
        kind="int",
        minimum=0,
        maximum=65_535,
        doc="The port for Prometheus to scrape this instance's metrics; 0 for any free port.",
    )
    metrics_host: str = setting(
        default="127.0.0.1", doc="The address on which the metrics port listens."
    )
    log_summary_interval_ms: int = setting(
        default=120_000, doc="How often a thread logs a summary of its work; 0 or less disables it."
    )
    log_format: str = setting(
        default="text",
        choices=("text", "json"),
        doc="The format of log lines; `json` calls `log_as_json()` at the start.",
    )

    # Java's extension points that have no counterpart here.
    config_providers: tuple[str, ...] = setting(
        default=(),
        unsupported="StreamsConfig.from_file and from_env have the providers env, file and dir.",
        doc="Java's providers of indirect configuration values.",
    )
    default_client_supplier: Any = setting(
        default=None,
        kind="object",
        unsupported="configure the clients through the dictionaries.",
        doc="Java's factory of Kafka clients.",
    )
    windowed_inner_class_serde: Any = setting(
        default=None, kind="object", unsupported=_WINDOWED, doc="Deprecated in Kafka Streams."
    )
    window_size_ms: int | None = setting(
        default=None, kind="int", unsupported=_WINDOWED, doc="Deprecated in Kafka Streams."
    )

    # Autoscaling.
    elastic_lag_target_ms: int = setting(
        default=30_000,
        minimum=1_000,
        doc="Threads are added when processing the records that wait in the input topics would "
        "take longer than this.",
    )
    elastic_cooldown_ms: int = setting(
        default=120_000,
        minimum=1_000,
        doc="Threads are removed when fewer would have been enough for this long.",
    )

    # The HTTP server.
    server_port: int | None = setting(
        default=None,
        kind="int",
        minimum=0,
        maximum=65_535,
        doc="The port of the HTTP server; 0 for any free port, None for no server.",
    )
    server_host: str = setting(
        default="127.0.0.1",
        doc="The address on which the server listens; by default only this machine can connect.",
    )
    server_token: str | None = setting(
        default=None,
        doc="The token that requests must contain; by default, a random token at each start. "
        "Instances that query each other need the same token.",
    )
    server_tls_certificate: str | None = setting(
        default=None,
        kind="path",
        doc="PEM file with the server's certificate chain; enables HTTPS.",
    )
    server_tls_key: str | None = setting(
        default=None,
        kind="path",
        doc="PEM file with the private key; by default it is in the certificate file.",
    )
    server_tls_key_password: str | None = setting(default=None, doc="Password of the private key.")
    server_tls_ca: str | None = setting(
        default=None,
        kind="path",
        doc="PEM file with the certificate authorities of other instances; by default, the "
        "system's.",
    )
    server_tls_client_ca: str | None = setting(
        default=None,
        kind="path",
        doc="PEM file with the certificate authorities of clients. By default, clients need no "
        "certificate.",
    )
    server_request_timeout_ms: int = setting(
        default=10_000, minimum=1, doc="Timeout for receiving a request, and for processing it."
    )
    server_request_max_bytes: int = setting(
        default=1_048_576, minimum=1, doc="Maximum size of a request body."
    )
    server_max_concurrent_requests: int = setting(
        default=32,
        minimum=1,
        doc="Maximum number of concurrent requests; further requests are rejected and may be "
        "retried. Eight times as many connections may be open.",
    )

    # Connections of all clients. A setting is passed to the clients only if it was set explicitly.
    # Otherwise, each client uses its own default, as in Kafka Streams.
    connections_max_idle_ms: int = setting(
        is_connection=True,
        default=540_000,
        minimum=-1,
        doc="The time after which idle connections are closed.",
    )
    enable_metrics_push: bool = setting(
        is_connection=True, default=True, doc="Whether clients push metrics to the brokers."
    )
    metadata_max_age_ms: int = setting(
        is_connection=True, default=300_000, minimum=0, doc="How often metadata is refreshed."
    )
    metadata_recovery_strategy: str = setting(
        is_connection=True,
        default="rebootstrap",
        choices=("rebootstrap", "none"),
        doc="What clients do when no known broker responds.",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = setting(
        is_connection=True,
        default=300_000,
        minimum=0,
        doc="The time without metadata after which clients bootstrap again from bootstrap_servers.",
    )
    receive_buffer_bytes: int = setting(
        is_connection=True,
        default=32_768,
        minimum=-1,
        doc="Socket receive buffer; by default the system's.",
    )
    send_buffer_bytes: int = setting(
        is_connection=True,
        default=131_072,
        minimum=-1,
        doc="Socket send buffer; by default the system's.",
    )
    reconnect_backoff_ms: int = setting(
        is_connection=True, default=50, minimum=0, doc="Initial backoff before a reconnect."
    )
    reconnect_backoff_max_ms: int = setting(
        is_connection=True, default=1_000, minimum=0, doc="Maximum backoff before a reconnect."
    )
    request_timeout_ms: int = setting(
        is_connection=True, default=40_000, minimum=1, doc="Timeout of a request."
    )
    retry_backoff_ms: int = setting(
        is_connection=True, default=100, minimum=0, doc="Backoff before a request is retried."
    )
    security_protocol: str = setting(
        is_connection=True,
        default="PLAINTEXT",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="The protocol of connections to brokers.",
    )
    speedups: bool | None = setting(
        is_connection=True,
        default=None,
        doc="Whether clients and record caches use the C extension: None to use it if it is "
        "available, True to require it, False for Python only.",
        kind="bool",
    )

    # Settings of the Kafka clients and of internal topics, with Kafka's dotted names.
    clients: Mapping[str, Any] = setting(
        "",
        is_connection=True,
        default={},
        doc="For every client that has the setting, for example SSL and SASL settings.",
    )
    consumer: Mapping[str, Any] = setting(
        "consumer.", is_connection=True, default={}, doc="For all consumers and the group member."
    )
    main_consumer: Mapping[str, Any] = setting(
        "main.consumer.",
        is_connection=True,
        default={},
        doc="For the main consumer and the group member.",
    )
    restore_consumer: Mapping[str, Any] = setting(
        "restore.consumer.",
        is_connection=True,
        default={},
        doc="For the consumer that restores stores.",
    )
    global_consumer: Mapping[str, Any] = setting(
        "global.consumer.", is_connection=True, default={}, doc="For the consumer of global tables."
    )
    producer: Mapping[str, Any] = setting(
        "producer.", is_connection=True, default={}, doc="For the producer."
    )
    admin: Mapping[str, Any] = setting(
        "admin.", is_connection=True, default={}, doc="For the admin client."
    )
    topic: Mapping[str, Any] = setting(
        "topic.",
        is_connection=True,
        default={},
        doc="For internal topics; settings in the topology take precedence.",
    )
    extra: Mapping[str, Any] = setting(
        "",
        is_connection=True,
        default={},
        doc="Settings unknown to Millstream, kept for processors to read.",
    )

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> StreamsConfig:
        """Create settings from Kafka's dotted names, as used by Java applications.

        Strings are converted to the type of the setting ("true", "100"). Serdes, handlers and
        extractors must be Python objects, or classes that can be called without arguments. Client
        settings may be prefixed (`main.consumer.` takes precedence over `consumer.`, and
        `consumer.` over no prefix). Unknown properties are kept in `extra`, with a warning unless
        the name begins and ends with two underscores.

        Raises:
            ConfigError: a value cannot be parsed, or is invalid (see `StreamsConfig`).

        Example:
            >>> properties = {"application.id": "shop", "bootstrap.servers": "kafka:9092"}
            >>> StreamsConfig.from_properties({**properties, "poll.ms": "50"}).poll_ms
            50
        """
        return cls(**read_properties(cls.settings(), properties))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **settings: Any) -> StreamsConfig:
        """Create settings from a file and arguments, which take precedence.

        A TOML file contains Millstream's names, with a table for each dictionary (`[consumer]`). A
        file that ends in `.properties` contains Kafka's names, as in Java applications. Values may
        refer to secrets: `${env:NAME}`, `${file:/path}`, `${file:/path:key}`, `${dir:/path:name}`.
        In TOML, a duration may have a unit (`"30s"`), and an object is named by `"module:name"`.

        Raises:
            ConfigError: the file cannot be read, or a value is unknown, missing or invalid. The
                message contains the file and the line.

        Example:
            >>> StreamsConfig.from_file("nowhere.toml", num_stream_threads=4)
            Traceback (most recent call last):
                ...
            millstream.errors.ConfigError: The file nowhere.toml cannot be read: No such file or \
directory.
        """
        given = read_config_file(path, cls.settings())
        missing = f"add it to {os.fspath(path)}, or pass it as an argument"
        return settings_of(cls, [given], settings, lambda _: missing)

    @classmethod
    def from_env(
        cls,
        prefix: str = PREFIX,
        *,
        file: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> StreamsConfig:
        """Create settings from environment variables, a file and arguments.

        Arguments take precedence over the environment, and the environment over the file. A
        variable is named like its setting, in capitals with the prefix: `MILLSTREAM_POLL_MS`, or
        `MILLSTREAM_CONSUMER_MAX_POLL_RECORDS` for a key of a dictionary. Values have the same forms
        as the strings in a TOML file; lists are separated by commas. Empty variables are ignored.

        Raises:
            ConfigError: a value is unknown, missing or invalid. The message contains the variable,
                or the file and the line.

        Example:
            >>> import os
            >>> os.environ["SHOP_BOOTSTRAP_SERVERS"] = "kafka:9092"
            >>> StreamsConfig.from_env("SHOP_", application_id="shop").bootstrap_servers
            'kafka:9092'
        """
        layers = [] if file is None else [read_config_file(file, cls.settings())]
        layers.append(list(read_environment(prefix, os.environ, cls.settings())))
        in_file = "" if file is None else f", add it to {os.fspath(file)}"
        return settings_of(
            cls,
            layers,
            settings,
            lambda name: f"set {prefix}{name.upper()}{in_file}, or pass it as an argument",
        )

    def replace(self, **changes: Any) -> StreamsConfig:
        """Return a copy with changed settings. Dependent defaults are recomputed.

        Raises:
            ConfigError: a setting is invalid (see `StreamsConfig`).

        Example:
            >>> config = StreamsConfig(application_id="shop", bootstrap_servers="localhost:9092")
            >>> config.replace(num_stream_threads=4).num_stream_threads
            4
        """
        values = {name: getattr(self, name) for name in self.given}
        return type(self)(**{**values, **changes})

    def client_settings(self, role: Role) -> dict[str, Any]:
        """Return the explicitly set settings of one Kafka client, by Kafka's names.

        The most specific dictionary takes precedence.

        Example:
            >>> config = StreamsConfig(
            ...     application_id="shop",
            ...     bootstrap_servers="localhost:9092",
            ...     consumer={"max.poll.records": 500},
            ... )
            >>> config.client_settings("main_consumer")["max.poll.records"]
            500
        """
        return merged_client_settings(self, role)

    @property
    def least_stream_threads(self) -> int:
        """The initial number of threads: the first of the pair, or the only number."""
        return bounds_of(self.num_stream_threads)[0]

    @property
    def most_stream_threads(self) -> int:
        """The maximum for autoscaling: the second of the pair, or the only number."""
        return bounds_of(self.num_stream_threads)[1]

    @property
    def exactly_once(self) -> bool:
        """Whether results and input offsets are committed in one transaction."""
        return self.processing_guarantee == EXACTLY_ONCE_V2

    @classmethod
    def _unknown(cls, name: str) -> ConfigError:
        advice = client_setting_advice(name) or _FOREIGN_ARGUMENTS.get(name)
        if advice is None or any(name in each.aliases for each in cls.settings()):
            return super()._unknown(name)
        return ConfigError(f"{cls.__name__} has no setting {name!r}. {advice}")

    def _complete(self) -> None:
        if self.exactly_once and "commit_interval_ms" not in self.given:
            self.__dict__["commit_interval_ms"] = _EXACTLY_ONCE_COMMIT_INTERVAL_MS
        check_together(self)
