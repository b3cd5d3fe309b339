"""A schema registry in memory that gives equal schemas one id, as real registries do."""

from __future__ import annotations

import json
import threading
from typing import Any

#: Text, type, references, metadata and rules.
_Identity = tuple[str, str, str, str, str]


class MockRegistry:
    """confluent-kafka's client of a `mock://` registry, with one id per schema.

    confluent-kafka's mock makes a new id for each subject. A real registry, and the mock of
    Confluent's Java client, return one id for one schema, whatever the subject. Without that, the
    bytes of a key depend on the topic, so that equal keys are counted apart and joins find
    nothing.

    Args:
        client: what `SchemaRegistryClient.new_client` returns for a `mock://` address.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._ids: dict[_Identity, tuple[int, str]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def register_schema(self, *args: Any, **settings: Any) -> Any:
        """Register a schema under a subject; return its id."""
        return self.register_schema_full_response(*args, **settings).schema_id

    def register_schema_full_response(self, *args: Any, **settings: Any) -> Any:
        """Register a schema under a subject."""
        return self._with_one_id(self._client.register_schema_full_response(*args, **settings))

    def lookup_schema(self, *args: Any, **settings: Any) -> Any:
        """Find a schema that is registered under a subject."""
        return self._with_one_id(self._client.lookup_schema(*args, **settings))

    def get_latest_version(self, *args: Any, **settings: Any) -> Any:
        """Return the newest schema of a subject."""
        return self._with_one_id(self._client.get_latest_version(*args, **settings))

    def get_latest_with_metadata(self, *args: Any, **settings: Any) -> Any:
        """Return the newest schema of a subject with certain metadata."""
        return self._with_one_id(self._client.get_latest_with_metadata(*args, **settings))

    def get_version(self, *args: Any, **settings: Any) -> Any:
        """Return one version of the schemas of a subject."""
        return self._with_one_id(self._client.get_version(*args, **settings))

    def _with_one_id(self, registered: Any) -> Any:
        schema = registered.schema
        with self._lock:
            number, guid = self._ids.setdefault(
                _identity(schema), (registered.schema_id, registered.guid)
            )
        return type(registered)(
            schema_id=number,
            guid=guid,
            schema=schema,
            subject=registered.subject,
            version=registered.version,
        )


def _identity(schema: Any) -> _Identity:
    """What makes two schemas one for a registry, which writes Avro and JSON anew."""
    text, kind = str(schema.schema_str), schema.schema_type or "AVRO"
    if kind != "PROTOBUF":
        text = json.dumps(json.loads(text), sort_keys=kind == "AVRO")
    return text, kind, repr(schema.references), repr(schema.metadata), repr(schema.rule_set)
