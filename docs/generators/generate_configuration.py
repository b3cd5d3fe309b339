"""Writes the tables of settings and properties in the documentation from the tables in the code.

    python docs/generators/generate_configuration.py          # rewrite the pages
    python docs/generators/generate_configuration.py --check  # exit code 1 if they are outdated

Each table is between `<!-- table: NAME -->` and `<!-- end -->`; the other text is not generated.
A setting has an effect if the code reads it; the generator searches the source for its name.
"""

from __future__ import annotations

import ast
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from generated import write_or_check

from millstream import StreamsConfig
from millstream.config.client_settings import (
    CLIENT_SETTINGS,
    DICTIONARIES_OF,
    SECURITY,
    ClientSetting,
    Role,
    SettingScope,
)
from millstream.config.fields import Setting
from millstream.kafka.settings.librdkafka_settings import librdkafka_settings
from millstream.parallel import Properties

DOCS = Path(__file__).parents[1]
PAGES = (
    DOCS / "operations" / "configuration.md",
    DOCS / "build" / "subscriptions-properties.md",
)
SOURCE = DOCS.parent / "src" / "millstream"

#: The first setting of each section.
SECTIONS = {
    "threads": "num_stream_threads",
    "state": "state_dir",
    "topics": "replication_factor",
    "serdes": "default_key_serde",
    "assignment": "task_assignor_class",
    "metrics": "metrics_recording_level",
    "elastic": "elastic_lag_target_ms",
    "server": "server_port",
    "connections": "connections_max_idle_ms",
    "dictionaries": "clients",
}

#: Remarks in addition to the metadata in the code.
REMARKS = {
    "buffered_records_per_partition": "A thread also stops polling while its tasks have more "
    "than 10 × this value in their buffers, or 2 × `max.poll.records` if that is larger.",
    "topology_optimization": "Must match `StreamsBuilder(optimize=...)`.",
    "ensure_explicit_internal_resource_naming": "Checked by the test driver; otherwise call "
    "`topology.check_explicit_names()`.",
}

#: Properties that the config derives from settings, with these settings.
SETTING_OF_PROPERTY = {
    "exactly_once": "processing_guarantee",
    "least_stream_threads": "num_stream_threads",
    "most_stream_threads": "num_stream_threads",
}

#: The clients of a stream thread.
ROLES: tuple[Role, ...] = (
    "main_consumer",
    "restore_consumer",
    "global_consumer",
    "producer",
    "admin",
)

#: The defaults of Kafka Streams where they differ from those of the Java clients.
KAFKA_STREAMS = {"linger.ms": 100, "max.poll.records": 1_000}

#: The reasons for defaults that differ from those of Kafka Streams.
REASONS = {
    "fetch.max.wait.ms": "Delays the detection of new partitions and of end offsets.",
    "queue.buffering.max.kbytes": "The total for all threads.",
    "buffer.memory": "The total for all threads.",
    "queued.max.messages.kbytes": "The size of prefetched records, in total for all threads.",
    "queued.min.messages": "Fetching continues while fewer records than this are queued.",
    "fetch.queue.backoff.ms": "The delay before fetching again after the local queue was full.",
    "fetch.error.backoff.ms": "The delay before fetching again after an error.",
    "batch.size": "Larger batches; `linger.ms` limits the wait for them. Topics with a smaller "
    "`max.message.bytes` get smaller batches.",
    "batch.num.messages": "High enough that only `batch.size` limits batches.",
    "queue.buffering.max.messages": "The maximum number of unsent records.",
    "compression.type": "Less network traffic and storage, at a low cost.",
    "topic.metadata.propagation.max.ms": "The time after which a missing topic is an error; "
    "librdkafka's default is 30 s.",
    "delivery.timeout.ms": "At least `task_timeout_ms`, so that no record times out before "
    "its task.",
    "linger.ms": "Short enough for a pipeline of several topics, long enough to fill batches.",
    "partitioner": "Selects the same partitions as Kafka's default partitioner.",
    "max.poll.records": "Processing in Python is faster in large batches.",
}

#: Millstream's defaults for the client settings that it implements itself.
ENGINE_DEFAULTS = {"max.poll.records": 5_000}

#: librdkafka settings that Millstream sets for other reasons than performance.
NOT_TUNABLE = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "group.id",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "allow.auto.create.topics",
        "auto.offset.reset",
        "enable.partition.eof",
        "isolation.level",
        "security.protocol",
    }
)

CLIENT_KINDS = {"c": "consumer", "p": "producer", "a": "admin"}

Row = tuple[str, ...]


# The settings that have an effect.


@cache
def syntax_trees() -> list[ast.Module]:
    """Return the syntax trees of the source, except for the packages `config` and `testing`."""
    return [
        ast.parse(path.read_text())
        for path in sorted(SOURCE.rglob("*.py"))
        if path.parent.name not in ("config", "testing")
    ]


@cache
def read_settings() -> frozenset[str]:
    """Return the settings that the code reads as attributes of a config."""
    names = {
        node.attr
        for tree in syntax_trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and _is_config(node.value)
    }
    return frozenset(SETTING_OF_PROPERTY.get(name, name) for name in names)


@cache
def named_strings() -> frozenset[str]:
    """Return every string literal in the code, because client settings are read by name."""
    return frozenset(
        node.value
        for tree in syntax_trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def has_effect(setting: Setting) -> bool:
    """Return whether the code uses a setting of the application."""
    client = CLIENT_SETTINGS.get(setting.dotted)
    if client is not None and client.scope is SettingScope.NETWORK:
        return True
    passed_on = {name for role in ROLES for name in DICTIONARIES_OF[role]}
    return setting.name in passed_on or setting.name in read_settings()


def _is_config(value: ast.expr) -> bool:
    name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
    return name.lstrip("_") == "config"


# The tables.


def settings_of(section: str) -> list[Setting]:
    """Return the settings from the first one of a section up to the next section."""
    listed = StreamsConfig.settings()
    if section == "required":
        return [setting for setting in listed if setting.required]
    starts = list(SECTIONS.values())
    position = starts.index(SECTIONS[section])
    names = [setting.name for setting in listed]
    end = names.index(starts[position + 1]) if position + 1 < len(starts) else len(names)
    return [s for s in listed[names.index(starts[position]) : end] if not s.required]


def settings_table(section: str) -> str:
    rows = (
        (f"`{s.name}`", default_of(s), s.doc, " ".join(remarks_on(s))) for s in settings_of(section)
    )
    return table(("Setting", "Default", "Meaning", "Remarks"), rows)


def remarks_on(setting: Setting) -> Iterator[str]:
    """Yield the bounds, Kafka's name if it is not the plain translation, and restrictions."""
    bounds = setting.bounds()
    if bounds:
        yield f"{bounds[0].upper()}{bounds[1:]}."
    plain = setting.name.replace("_", ".")
    if setting.kind != "mapping" and setting.dotted != plain:
        yield f"Kafka: `{setting.dotted}`."
    if setting.kind == "mapping" and setting.dotted:
        yield f"Kafka: `{setting.dotted.rstrip('.')}.*`."
    if setting.aliases:
        yield f"Also: {', '.join(f'`{alias}`' for alias in setting.aliases)}."
    if setting.unsupported is not None:
        yield f"Not supported: {setting.unsupported}"
    elif not has_effect(setting):
        yield "**No effect yet.**"
    if REMARKS.get(setting.name):
        yield REMARKS[setting.name]


def default_of(setting: Setting) -> str:
    if setting.required:
        return "required"
    temporary = tempfile.gettempdir()
    if isinstance(setting.default, str) and setting.default.startswith(temporary):
        return f"`<temporary folder>{setting.default.removeprefix(temporary)}`"
    return shown(setting.default)


def tuned_defaults() -> str:
    """Return the client defaults that differ from those of Kafka Streams."""
    config = StreamsConfig(application_id="app", bootstrap_servers="broker:9092")
    by_librdkafka_name = {row.librdkafka: row for row in CLIENT_SETTINGS.values() if row.librdkafka}
    clients: dict[Row, list[str]] = {}
    for role in ROLES:
        for name, value in librdkafka_settings(config, role, "app").items():
            row = by_librdkafka_name.get(name)
            theirs = None if row is None else KAFKA_STREAMS.get(row.name, row.default)
            if name in NOT_TUNABLE or _same(row, value, theirs):
                continue
            kafka = name if row is None else row.name
            ours = value * 1024 if kafka == "buffer.memory" else value
            why = REASONS.get(kafka, "")
            line = (f"`{kafka}`", shown(ours), shown(theirs), why)
            clients.setdefault(line, []).append(role)
    rows = [(*line[:1], ", ".join(roles), *line[1:]) for line, roles in clients.items()]
    for kafka, engines in ENGINE_DEFAULTS.items():
        default = KAFKA_STREAMS.get(kafka, CLIENT_SETTINGS[kafka].default)
        rows.append((f"`{kafka}`", "main_consumer", shown(engines), shown(default), REASONS[kafka]))
    return table(("Setting", "Client", "Millstream", "Kafka Streams", "Reason"), rows)


def _same(row: ClientSetting | None, ours: Any, theirs: Any) -> bool:
    if row is None:
        return False
    return str(ours).lower() == str(theirs).lower()


def supported_settings() -> str:
    rows = (
        (
            f"`{row.name}`",
            _clients(row),
            shown(row.default),
            _passed_on(row.librdkafka),
            _passed_on(row.kafka_python),
        )
        for row in CLIENT_SETTINGS.values()
        if row.scope
        in (SettingScope.NETWORK, SettingScope.FETCH, SettingScope.PRODUCE, SettingScope.GROUP)
        and row.librdkafka != SECURITY
    )
    return table(("Setting", "Clients", "Kafka's default", "librdkafka", "kafka-python"), rows)


def security_settings() -> str:
    rows = (
        (f"`{row.name}`", shown(row.default))
        for row in CLIENT_SETTINGS.values()
        if row.librdkafka == SECURITY
    )
    return table(("Setting", "Kafka's default"), rows)


def engine_settings() -> str:
    rows = (
        (
            f"`{row.name}`",
            _clients(row),
            shown(ENGINE_DEFAULTS.get(row.name, row.default)),
            row.why if row.name in named_strings() else "**No effect yet.**",
        )
        for row in CLIENT_SETTINGS.values()
        if row.scope is SettingScope.ENGINE
    )
    return table(("Setting", "Clients", "Default", "Meaning"), rows)


def imposed_settings() -> str:
    rows = (
        (f"`{row.name}`", _clients(row))
        for row in CLIENT_SETTINGS.values()
        if row.scope is SettingScope.IMPOSED
    )
    return table(("Setting", "Clients"), rows)


def unsupported_settings() -> str:
    return table(
        ("Setting", "Clients", "Only allowed value", "Reason"),
        (
            (f"`{row.name}`", _clients(row), shown(row.default), why)
            for row in CLIENT_SETTINGS.values()
            if (why := _why_unsupported(row))
        ),
    )


def _why_unsupported(row: ClientSetting) -> str:
    if row.scope is SettingScope.UNSUPPORTED:
        return row.why
    if row.librdkafka is None:
        return "librdkafka has no such setting."
    if row.kafka_python is None:
        return (
            "kafka-python, which implements the group member, has no such setting. Allowed in "
            "`producer`, `admin` and `restore_consumer`."
        )
    return ""


#: The types of properties on the reference page.
PROPERTY_TYPES = {
    "int": "int",
    "bool": "bool",
    "list": "list of str",
    "rates": "int by topic",
}


def properties_of_subscriptions() -> str:
    rows = (
        (
            f"`{one.name}`",
            f"`{one.dotted}`",
            PROPERTY_TYPES[one.kind] + (" or None" if one.default is None else ""),
            "`None`" if one.default is None else shown(one.default),
            one.bounds() or "–",
            one.applied.value,
            one.doc,
        )
        for one in Properties.table()
    )
    head = ("Property", "Decaton's", "Type", "Default", "Bounds", "Takes effect", "Meaning")
    return table(head, rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "required": partial(settings_table, "required"),
    **{section: partial(settings_table, section) for section in SECTIONS},
    "tuned": tuned_defaults,
    "supported": supported_settings,
    "security": security_settings,
    "engine": engine_settings,
    "imposed": imposed_settings,
    "unsupported": unsupported_settings,
    "properties": properties_of_subscriptions,
}


# Markdown.


def table(head: Row, rows: Iterable[Row]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def shown(value: Any) -> str:
    """Format a value as Python code."""
    if value is None or value in ((), ""):
        return "–"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"`{value:_}`"
    return f"`{value!r}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _clients(row: ClientSetting) -> str:
    return ", ".join(CLIENT_KINDS[letter] for letter in row.clients)


def _passed_on(name: str | None) -> str:
    if name is None:
        return "unsupported"
    return f"`{name}`" if name else "–"


def page(text: str) -> str:
    """Return a page with all its tables updated.

    Raises:
        KeyError: the page contains an unknown table.
    """
    return re.sub(
        r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}",
        text,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    raise SystemExit(
        write_or_check(
            __doc__,
            [(path, page(path.read_text(encoding="utf-8"))) for path in PAGES],
            sys.argv[1:],
        )
    )
