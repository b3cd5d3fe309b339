"""The settings of an application: Kafka Streams' own, in snake_case, with Python values."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from millstream.config_checks import check_together
from millstream.config_clients import client_setting_advice
from millstream.config_elastic import ElasticSettings
from millstream.config_fields import PathSetting, ServersSetting, setting
from millstream.config_properties import read_properties
from millstream.config_threads import ThreadsSetting, bounds_of
from millstream.errors import ConfigError

__all__ = ["AT_LEAST_ONCE", "EXACTLY_ONCE_V2", "StreamsConfig"]

AT_LEAST_ONCE: Final = "at_least_once"
EXACTLY_ONCE_V2: Final = "exactly_once_v2"

_EXACTLY_ONCE_COMMIT_INTERVAL_MS: Final = 100

_UPGRADE: Final = "Millstream has no older protocol to upgrade from."
_WINDOWED: Final = "it configures Java's windowed deserializers; see serdes.time_windowed."
_LIST_SERDE: Final = "use millstream.serdes.list_of(inner) as the default serde."


#: Arguments of Faust, Quix Streams and kafka-python.
_OTHER_WORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("broker", "brokers", "broker_address", "bootstrap_server", "servers"),
        'Write bootstrap_servers="host:port".',
    ),
    **dict.fromkeys(
        ("id", "app_id", "consumer_group", "group"), "Write application_id=, which names the group."
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
    """Kafka Streams' default: a folder among the temporary files."""
    try:
        return str(Path(tempfile.gettempdir()) / "kafka-streams")
    except FileNotFoundError:
        # Nothing is writable but, perhaps, the `state_dir` that the program is going to set.
        return "/tmp/kafka-streams"


class StreamsConfig(ElasticSettings):
    """The settings of one application. Frozen; every Kafka Streams 4.3 setting, with its default.

    Durations that end in `_ms` are whole milliseconds (int, not timedelta). Serdes, handlers and
    extractors are objects. The dictionaries at the end take settings of the Kafka clients under
    Kafka's own dotted names; a more specific one wins: `main_consumer` over `consumer` over
    `clients`.

    Raises:
        ConfigError: a setting is unknown, missing, out of range, contradicts another one, or cannot
            be honoured by one of the two Kafka libraries that are used.

    Example:
        >>> config = StreamsConfig(application_id="shop", bootstrap_servers="localhost:9092")
        >>> config.commit_interval_ms
        30000
        >>> config.processing_guarantee == AT_LEAST_ONCE
        True
        >>> config.replace(processing_guarantee=EXACTLY_ONCE_V2).commit_interval_ms
        100
    """

    # What must be given.
    application_id: str = setting(
        "application.id",
        doc="Names the consumer group and begins the names of internal topics, clients and state "
        "directories.",
    )
    bootstrap_servers: ServersSetting = setting(
        "bootstrap.servers",
        doc="Brokers to begin with, as host:port, separated by commas or in a list.",
        kind="servers",
    )

    # Threads, tasks and time.
    num_stream_threads: ThreadsSetting = setting(
        "num.stream.threads",
        default=1,
        least=1,
        doc="Stream threads (Spark tasks) to start; or a pair (least, most), in properties 1-8, "
        "between which they come and go with the load.",
        kind="threads",
    )
    processing_guarantee: str = setting(
        "processing.guarantee",
        default=AT_LEAST_ONCE,
        choices=(AT_LEAST_ONCE, EXACTLY_ONCE_V2),
        doc="Whether a failure may repeat results or not.",
    )
    commit_interval_ms: int = setting(
        "commit.interval.ms",
        default=30_000,
        least=0,
        doc="Milliseconds between commits; 100 by default under exactly_once_v2. 0 commits after "
        "each round.",
    )
    poll_ms: int = setting(
        "poll.ms", default=100, least=0, doc="Most milliseconds a thread waits for records."
    )
    max_task_idle_ms: int = setting(
        "max.task.idle.ms",
        default=0,
        least=-1,
        doc="How long a task with an empty input partition waits for records that nobody has "
        "written yet. 0 only waits for what the broker has, -1 for nothing.",
    )
    task_timeout_ms: int = setting(
        "task.timeout.ms",
        default=300_000,
        least=0,
        doc="How long what the cluster did not answer is tried again, from the first try that "
        "failed; with 0 there is that one try. How long a try takes is set by the clients' own "
        "timeouts. A directory that another process has locked is waited for at least 30 seconds.",
    )
    buffered_records_per_partition: int = setting(
        "buffered.records.per.partition",
        default=1_000,
        least=1,
        doc="Records buffered of one partition before it is paused.",
    )
    client_id: str = setting(
        "client.id", default="", doc="Begins the names of threads and clients; by default made up."
    )
    application_server: str = setting(
        "application.server",
        default="",
        doc="This instance's address, host:port, for queries by other instances.",
    )
    group_protocol: str = setting(
        "group.protocol",
        default="classic",
        choices=("classic", "streams"),
        unsupported="tasks are assigned by the group's leader, which the classic protocol does.",
        doc="The protocol of the consumer group.",
    )

    # State.
    state_dir: PathSetting = setting(
        "state.dir",
        default=_default_state_dir(),
        doc="Where state directories are kept. ${NAME} in it is a variable of the environment, "
        "which each host has for itself.",
        kind="path",
    )
    dataframe_checkpoint_dir: str | None = setting(
        "dataframe.checkpoint.dir",
        default=None,
        doc="Where queries of DataFrame functions keep their checkpoints: a folder or a URL that "
        "all drivers reach; None for a folder in `state_dir`.",
        kind="str",
    )
    num_standby_replicas: int = setting(
        "num.standby.replicas",
        default=0,
        least=0,
        doc="Copies of each stateful task kept up to date on other hosts.",
    )
    max_warmup_replicas: int = setting(
        "max.warmup.replicas",
        default=2,
        least=1,
        doc="Copies beyond the standbys that may be warming up at once.",
    )
    acceptable_recovery_lag: int = setting(
        "acceptable.recovery.lag",
        default=10_000,
        least=0,
        doc="Changelog records behind which a copy still counts as caught up.",
    )
    probing_rebalance_interval_ms: int = setting(
        "probing.rebalance.interval.ms",
        default=600_000,
        least=60_000,
        doc="How often a rebalance asks whether warming copies have caught up.",
    )
    statestore_cache_max_bytes: int = setting(
        "statestore.cache.max.bytes",
        default=10_485_760,
        least=0,
        aliases=("cache.max.bytes.buffering",),
        doc="Bytes of record caches, split over the threads; 0 switches caching off.",
    )
    statestore_uncommitted_max_bytes: int = setting(
        "statestore.uncommitted.max.bytes",
        default=67_108_864,
        least=-1,
        doc="Bytes of writes to persistent stores that may wait in memory for a commit, split over "
        "the threads; a thread with more commits before its next batch. -1 for no limit.",
    )
    state_cleanup_delay_ms: int = setting(
        "state.cleanup.delay.ms",
        default=600_000,
        least=0,
        doc="How long a directory of a task that moved away is kept.",
    )
    state_cleanup_dir_max_age_ms: int = setting(
        "state.cleanup.dir.max.age.ms",
        default=-1,
        least=-1,
        doc="At the start, remove task directories in which nothing was changed for longer than "
        "this; -1 none.",
    )
    allow_os_group_write_access: bool = setting(
        "allow.os.group.write.access",
        default=False,
        doc="Whether the state directory's group may write to it.",
    )
    default_dsl_store: Literal["rocksdb", "in_memory"] = setting(
        "default.dsl.store",
        default="rocksdb",
        choices=("rocksdb", "in_memory"),
        doc="The kind of the DSL's stores.",
    )
    dsl_store_suppliers_class: Any = setting(
        "dsl.store.suppliers.class",
        default=None,
        kind="object",
        unsupported="choose with default_dsl_store, or per operator with Materialized.",
        doc="Java's class that makes the DSL's stores.",
    )
    dsl_store_format: str = setting(
        "dsl.store.format",
        default="DEFAULT",
        choices=("DEFAULT", "HEADERS"),
        unsupported="stores do not keep record headers.",
        doc="What a stored value holds.",
    )
    rocksdb_config_setter: Any = setting(
        "rocksdb.config.setter",
        default=None,
        kind="object",
        doc="Called as (store_name, options, config) before each RocksDB store is opened, to "
        "change its rocksdict.Options; or a class with such a method set_config.",
    )
    windowstore_changelog_additional_retention_ms: int = setting(
        "windowstore.changelog.additional.retention.ms",
        default=86_400_000,
        least=0,
        doc="Added to the retention of the changelogs of windowed stores.",
    )

    # Topics.
    replication_factor: int = setting(
        "replication.factor",
        default=-1,
        least=-1,
        doc="Replicas of internal topics; -1 is the broker's default.",
    )
    repartition_purge_interval_ms: int = setting(
        "repartition.purge.interval.ms",
        default=30_000,
        least=0,
        doc="How often consumed repartition records are deleted.",
    )
    topology_optimization: str = setting(
        "topology.optimization",
        default="none",
        doc="none, all, or a list of Kafka Streams' optimizations by name.",
    )
    ensure_explicit_internal_resource_naming: bool = setting(
        "ensure.explicit.internal.resource.naming",
        default=False,
        doc="Refuse internal topics and stores without given names.",
    )

    # Serdes, extractors, handlers.
    default_key_serde: Any = setting(
        "default.key.serde", default=None, kind="object", doc="Serde for keys where none is given."
    )
    default_value_serde: Any = setting(
        "default.value.serde",
        default=None,
        kind="object",
        doc="Serde for values where none is given.",
    )
    default_list_key_serde_inner: Any = setting(
        "default.list.key.serde.inner",
        default=None,
        kind="object",
        unsupported=_LIST_SERDE,
        doc="Java's list serde for keys.",
    )
    default_list_key_serde_type: Any = setting(
        "default.list.key.serde.type",
        default=None,
        kind="object",
        unsupported=_LIST_SERDE,
        doc="Java's list type for keys.",
    )
    default_list_value_serde_inner: Any = setting(
        "default.list.value.serde.inner",
        default=None,
        kind="object",
        unsupported=_LIST_SERDE,
        doc="Java's list serde for values.",
    )
    default_list_value_serde_type: Any = setting(
        "default.list.value.serde.type",
        default=None,
        kind="object",
        unsupported=_LIST_SERDE,
        doc="Java's list type for values.",
    )
    default_timestamp_extractor: Callable[[Any, int], int] | None = setting(
        "default.timestamp.extractor",
        default=None,
        kind="object",
        doc="Gives each record its time, from (record, partition_time); by default its own, and a "
        "negative one fails.",
    )
    deserialization_exception_handler: Any = setting(
        "deserialization.exception.handler",
        default=None,
        kind="object",
        aliases=("default.deserialization.exception.handler",),
        doc="Asked when a record cannot be read; by default log and fail.",
    )
    processing_exception_handler: Any = setting(
        "processing.exception.handler",
        default=None,
        kind="object",
        doc="Asked when user code fails; by default log and fail.",
    )
    processing_exception_handler_global_enabled: bool = setting(
        "processing.exception.handler.global.enabled",
        default=False,
        doc="Whether that handler is asked for global stores too.",
    )
    production_exception_handler: Any = setting(
        "production.exception.handler",
        default=None,
        kind="object",
        aliases=("default.production.exception.handler",),
        doc="Asked when a record cannot be serialized for a sink, or Kafka does not take it; by "
        "default try again where that may help, else fail.",
    )
    errors_dead_letter_queue_topic_name: str | None = setting(
        "errors.dead.letter.queue.topic.name",
        default=None,
        doc="Where the built-in handlers send records they skip.",
    )
    processor_wrapper_class: Any = setting(
        "processor.wrapper.class",
        default=None,
        kind="object",
        unsupported="processors are wrapped where a topology is built: "
        "StreamsBuilder(processor_wrapper=...), Topology(processor_wrapper=...).",
        doc="Java's class that wraps the processors of the topology.",
    )

    # Assignment.
    task_assignor_class: Any = setting(
        "task.assignor.class",
        default=None,
        kind="object",
        doc="A task assignor in place of the high-availability one: a function or a class.",
    )
    rack_aware_assignment_strategy: str = setting(
        "rack.aware.assignment.strategy",
        default="none",
        choices=("none", "min_traffic", "balance_subtopology"),
        doc="Whether tasks are placed near the replicas of their partitions.",
    )
    rack_aware_assignment_traffic_cost: int | None = setting(
        "rack.aware.assignment.traffic_cost",
        default=None,
        kind="int",
        least=0,
        doc="Cost of a partition that is read from another rack; by default 10.",
    )
    rack_aware_assignment_non_overlap_cost: int | None = setting(
        "rack.aware.assignment.non_overlap_cost",
        default=None,
        kind="int",
        least=0,
        doc="Cost of moving a task; by default 1.",
    )
    rack_aware_assignment_tags: tuple[str, ...] = setting(
        "rack.aware.assignment.tags", default=(), doc="Client tags over which standbys are spread."
    )
    client_tags: Mapping[str, str] = setting(
        "client.tag",
        default={},
        doc="This instance's tags, such as {'zone': 'a'} (Kafka's client.tag.zone). A host's "
        "own, MILLSTREAM_CLIENT_TAG_ZONE in its environment, wins.",
    )
    upgrade_from: str | None = setting(
        "upgrade.from",
        default=None,
        unsupported=_UPGRADE,
        doc="Java's switch for rolling upgrades.",
    )

    # What it tells about itself.
    metrics_recording_level: str = setting(
        "metrics.recording.level",
        default="INFO",
        choices=("INFO", "DEBUG", "TRACE"),
        doc="How much is measured.",
    )
    metrics_num_samples: int = setting(
        "metrics.num.samples", default=2, least=1, doc="Samples kept for a rate or an average."
    )
    metrics_sample_window_ms: int = setting(
        "metrics.sample.window.ms", default=30_000, least=1, doc="Milliseconds a sample stands for."
    )
    metric_reporters: tuple[str, ...] = setting(
        "metric.reporters",
        default=("org.apache.kafka.common.metrics.JmxReporter",),
        unsupported="reporters are Java classes; read streams.metrics().",
        doc="Java's metric reporters.",
    )
    built_in_metrics_version: str = setting(
        "built.in.metrics.version",
        default="latest",
        choices=("latest",),
        doc="Which names the metrics have.",
    )
    metrics_port: int | None = setting(
        "metrics.port",
        default=None,
        kind="int",
        least=0,
        most=65_535,
        doc="Where Prometheus reads the metrics of this instance; 0 for any free port.",
    )
    metrics_host: str = setting(
        "metrics.host",
        default="127.0.0.1",
        doc="The address at which it listens for Prometheus.",
    )
    log_summary_interval_ms: int = setting(
        "log.summary.interval.ms",
        default=120_000,
        doc="How often a thread logs what it did; 0 or less never.",
    )

    # Java's ways to plug in classes that have no counterpart here.
    config_providers: tuple[str, ...] = setting(
        "config.providers",
        default=(),
        unsupported="resolve such values in Python.",
        doc="Java's sources of indirect values.",
    )
    default_client_supplier: Any = setting(
        "default.client.supplier",
        default=None,
        kind="object",
        unsupported="configure the clients through the dictionaries.",
        doc="Java's factory of Kafka clients.",
    )
    windowed_inner_class_serde: Any = setting(
        "windowed.inner.class.serde",
        default=None,
        kind="object",
        unsupported=_WINDOWED,
        doc="Deprecated in Kafka Streams.",
    )
    window_size_ms: int | None = setting(
        "window.size.ms",
        default=None,
        kind="int",
        unsupported=_WINDOWED,
        doc="Deprecated in Kafka Streams.",
    )

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> StreamsConfig:
        """Read settings under Kafka's dotted names, as a Java application has them.

        Strings are read in the type of the setting ("true", "100"). Serdes, handlers and extractors
        must be Python objects, or classes which are then called without arguments. Client settings
        may be prefixed (`main.consumer.` over `consumer.` over none). What Millstream does not know
        is kept in `extra`, with a warning unless its name begins and ends with two underscores.

        Raises:
            ConfigError: a value cannot be read, or does not fit (see `StreamsConfig`).

        Example:
            >>> properties = {"application.id": "shop", "bootstrap.servers": "kafka:9092"}
            >>> StreamsConfig.from_properties({**properties, "poll.ms": "50"}).poll_ms
            50
        """
        return cls(**read_properties(cls.settings(), properties))

    def replace(self, **changes: Any) -> StreamsConfig:
        """A copy with some settings changed; defaults that depend on others are worked out anew.

        Raises:
            ConfigError: as for the constructor.

        Example:
            >>> config = StreamsConfig(application_id="shop", bootstrap_servers="localhost:9092")
            >>> config.replace(num_stream_threads=4).num_stream_threads
            4
        """
        values = {name: getattr(self, name) for name in self.given}
        return type(self)(**{**values, **changes})

    @property
    def least_stream_threads(self) -> int:
        """With how many threads it begins: the first of the pair, or the only number."""
        return bounds_of(self.num_stream_threads)[0]

    @property
    def most_stream_threads(self) -> int:
        """How many there may become by themselves: the second of the pair, or the only number."""
        return bounds_of(self.num_stream_threads)[1]

    @property
    def exactly_once(self) -> bool:
        """Whether results and the offsets they came from are committed in one transaction."""
        return self.processing_guarantee == EXACTLY_ONCE_V2

    @classmethod
    def _unknown(cls, name: str) -> ConfigError:
        advice = client_setting_advice(name) or _OTHER_WORDS.get(name)
        if advice is None or any(name in each.aliases for each in cls.settings()):
            return super()._unknown(name)
        return ConfigError(f"{cls.__name__} has no setting {name!r}. {advice}")

    def _complete(self) -> None:
        if self.exactly_once and "commit_interval_ms" not in self.given:
            self.__dict__["commit_interval_ms"] = _EXACTLY_ONCE_COMMIT_INTERVAL_MS
        check_together(self)
