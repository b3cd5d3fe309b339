"""JSON schemas of the responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_TEXT_OR_NONE: Final = {"type": ["string", "null"]}
_NUMBER_OR_NONE: Final = {"type": ["integer", "null"]}
#: Any value that the store's serde returns.
_ANY: Final[Schema] = {}


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def list_of(schema: Schema) -> dict[str, Any]:
    return {"type": "array", "items": schema}


def record(doc: str, optional: Mapping[str, Schema] | None = None, /, **fields: Schema) -> Schema:
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
    "description": "The instance that has the key, as host:port; null if unknown.",
}
_ADDRESS: Final = record("The address of an instance.", host=_TEXT, port=_NUMBER)
_POSITION: Final = {
    "type": "object",
    "description": "The input that the result reflects: the last offset by topic and partition.",
    "additionalProperties": {"type": "object", "additionalProperties": _NUMBER},
}

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Error": record(
        "An error.",
        error=record(
            "A code for programs, a message for people, and the delay before a retry.",
            {"retry_after_ms": _NUMBER},
            code=_TEXT,
            message=_TEXT,
        ),
    ),
    "Health": record(
        "The status; for authorized clients also the state and the reason.",
        {"state": _TEXT, "why": _TEXT},
        status={"enum": ["ok", "not ok"]},
    ),
    "ConsoleState": {"type": "object", "description": "The document of the console."},
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
                "description": "How long records have been processed without a commit, if that is "
                "too long.",
            },
            client={
                "type": ["string", "null"],
                "description": "The process ID, which the threads of one host share.",
            },
            stall={
                "type": ["object", "null"],
                "description": "The stack of an unresponsive thread.",
                "properties": {
                    "silent_ms": _NUMBER,
                    "place": _TEXT,
                    "stack": list_of(_TEXT),
                },
            },
        )
    ),
    "Topology": record(
        "The topology.",
        subtopologies=list_of({"type": "object"}),
        global_stores=list_of({"type": "object"}),
        text={"type": "string", "description": "Kafka Streams' description of the topology."},
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
        "The value of a key.",
        {"timestamp": _NUMBER},
        key=_ANY,
        value=_ANY,
        partition=_NUMBER_OR_NONE,
        host=_HOST,
        position=_POSITION,
    ),
    "Page": record(
        "A page of entries.",
        entries=list_of(
            record(
                "A key and its value. Windows and sessions also have their bounds, versions the "
                "end of their validity.",
                {
                    "partition": _NUMBER,
                    "timestamp": _NUMBER,
                    "window_start": _NUMBER,
                    "window_end": _NUMBER,
                    "valid_to": _NUMBER_OR_NONE,
                },
                key=_ANY,
                value=_ANY,
            )
        ),
        cursor={
            "type": ["string", "null"],
            "description": "The cursor of the next page; null if this is the last one.",
        },
    ),
    "Instances": list_of(
        record(
            "An instance of the application, with its stores and partitions.",
            host=_TEXT,
            port=_NUMBER,
            stores=list_of(_TEXT),
            partitions=list_of(_PLACE),
            standby_stores=list_of(_TEXT),
            standby_partitions=list_of(_PLACE),
        )
    ),
    "Place": record(
        "The location of a key.",
        partition=_NUMBER,
        active={"anyOf": [_ADDRESS, {"type": "null"}]},
        standbys=list_of(_ADDRESS),
    ),
    "Lags": list_of(
        record(
            "The lag of a store partition behind its changelog.",
            store=_TEXT,
            partition=_NUMBER,
            current_offset=_NUMBER,
            end_offset=_NUMBER,
            lag=_NUMBER,
        )
    ),
    "PeerQuestion": {"description": "msgpack; not part of the public interface."},
    "OpenApi": {"type": "object", "description": "An OpenAPI document."},
    "Properties": {
        "type": "object",
        "minProperties": 1,
        "description": "Properties of a subscription by name; see "
        "docs/build/subscriptions-properties.md.",
    },
}
