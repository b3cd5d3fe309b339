"""What the answers look like, as JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_TEXT_OR_NONE: Final = {"type": ["string", "null"]}
_NUMBER_OR_NONE: Final = {"type": ["integer", "null"]}
#: Whatever the store's serde makes of the bytes.
_ANYTHING: Final[Schema] = {}


def ref(name: str) -> dict[str, str]:
    """A reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def list_of(schema: Schema) -> dict[str, Any]:
    """A list of such."""
    return {"type": "array", "items": schema}


def record(doc: str, optional: Mapping[str, Schema] | None = None, /, **fields: Schema) -> Schema:
    """An object with these fields, and, sometimes, the optional ones."""
    return {
        "type": "object",
        "description": doc,
        "required": list(fields),
        "properties": {**fields, **(optional or {})},
    }


_TASK: Final = record("A task and its state.", task_id=_TEXT, state=_TEXT)
_PLACE: Final = record("A topic's partition.", topic=_TEXT, partition=_NUMBER)

_FLAG: Final = {"type": "boolean"}
_HOST: Final = {
    "type": ["string", "null"],
    "description": "The instance that has it, as host:port; null where that is not known.",
}
_ADDRESS: Final = record("Where an instance answers.", host=_TEXT, port=_NUMBER)
_POSITION: Final = {
    "type": "object",
    "description": "The input that the answer stands for: by topic and partition the last offset.",
    "additionalProperties": {"type": "object", "additionalProperties": _NUMBER},
}

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Error": record(
        "What is wrong with a request, or in the way of an answer.",
        error=record(
            "What it is: a code for programs, a message for people, and when to ask again.",
            {"retry_after_ms": _NUMBER},
            code=_TEXT,
            message=_TEXT,
        ),
    ),
    "Health": record(
        "Yes or no; the state and what is in the way are for who shows the token.",
        {"state": _TEXT, "why": _TEXT},
        status={"enum": ["ok", "not ok"]},
    ),
    "ConsoleState": {"type": "object", "description": "All that the console shows."},
    "Threads": list_of(
        record(
            "A stream thread of this instance.",
            thread_name=_TEXT,
            thread_state=_TEXT,
            active_tasks=list_of(_TASK),
            standby_tasks=list_of(_TASK),
            host=_TEXT_OR_NONE,
            pid=_NUMBER_OR_NONE,
            uncommitted_ms={
                "type": ["integer", "null"],
                "description": "For how long it has processed records without a commit, if that "
                "is too long.",
            },
            client={
                "type": ["string", "null"],
                "description": "The process id that the threads of one host have in common.",
            },
            stall={
                "type": ["object", "null"],
                "description": "Where it hangs, if it does.",
                "properties": {
                    "silent_ms": _NUMBER,
                    "place": _TEXT,
                    "stack": list_of(_TEXT),
                },
            },
        )
    ),
    "Topology": record(
        "What is computed.",
        subtopologies=list_of({"type": "object"}),
        global_stores=list_of({"type": "object"}),
        text={"type": "string", "description": "As Kafka Streams describes it."},
    ),
    "Stores": list_of(
        record(
            "A store of the topology.",
            {"window_ms": _NUMBER_OR_NONE, "retention_ms": _NUMBER_OR_NONE},
            name=_TEXT,
            form={"enum": ["key-value", "window", "session", "versioned", "buffer"]},
            timestamped=_FLAG,
            persistent=_FLAG,
            cached=_FLAG,
            is_global=_FLAG,
            changelog=_TEXT_OR_NONE,
            subtopology=_NUMBER_OR_NONE,
            key={"type": ["string", "null"], "description": "The serde of keys."},
            value={"type": ["string", "null"], "description": "The serde of values."},
        )
    ),
    "Found": record(
        "What a store has of a key.",
        {"timestamp": _NUMBER},
        key=_ANYTHING,
        value=_ANYTHING,
        partition=_NUMBER_OR_NONE,
        host=_HOST,
        position=_POSITION,
    ),
    "Page": record(
        "Some entries.",
        entries=list_of(
            record(
                "A key and its value; of a window or a session from when to when that is, of a "
                "version until when it was valid.",
                {
                    "partition": _NUMBER,
                    "timestamp": _NUMBER,
                    "window_start": _NUMBER,
                    "window_end": _NUMBER,
                    "valid_to": _NUMBER_OR_NONE,
                },
                key=_ANYTHING,
                value=_ANYTHING,
            )
        ),
        cursor={
            "type": ["string", "null"],
            "description": "Where the next page begins; null if this is the last one.",
        },
    ),
    "Instances": list_of(
        record(
            "An instance of the application, and what it has.",
            host=_TEXT,
            port=_NUMBER,
            stores=list_of(_TEXT),
            partitions=list_of(_PLACE),
            standby_stores=list_of(_TEXT),
            standby_partitions=list_of(_PLACE),
        )
    ),
    "Place": record(
        "Who has a key.",
        partition=_NUMBER,
        active={"anyOf": [_ADDRESS, {"type": "null"}]},
        standbys=list_of(_ADDRESS),
    ),
    "Lags": list_of(
        record(
            "A partition of a store, and how far it is behind its changelog.",
            store=_TEXT,
            partition=_NUMBER,
            current_offset=_NUMBER,
            end_offset=_NUMBER,
            lag=_NUMBER,
        )
    ),
    "PeerQuestion": {"description": "msgpack; none of the public interface."},
    "OpenApi": {"type": "object", "description": "An OpenAPI document."},
    "Properties": {
        "type": "object",
        "minProperties": 1,
        "description": "The properties of a subscription by name: all are in "
        "docs/build/subscriptions-properties.md.",
    },
}
