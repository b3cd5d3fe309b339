"""Faults in serdes, declarations and messages to users (`serdes`, `tools`, `runtime`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_REGISTRY_TESTS = ("tests/unit/serdes/test_schema_registry_serdes.py",)

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "a mock registry gives each subject an id of its own",
        "serdes/_registry.py",
        "_clients[identity] = MockRegistry(client) if is_mock else client",
        "_clients[identity] = client",
        tests=_REGISTRY_TESTS,
    ),
    mutant(
        "one serializer of a registry writes the keys of all topics",
        "serdes/_registry.py",
        "write = self._writers.get(topic)",
        "write = next(iter(self._writers.values()), None)",
        tests=_REGISTRY_TESTS,
    ),
    mutant(
        "keys of a registry depend on the order of dicts",
        "serdes/_registry.py",
        "if self._is_key and self._depends_on_order:",
        "if False:",
        tests=_REGISTRY_TESTS,
    ),
    mutant(
        "a type with a plain class is accepted as a serde",
        "serdes/_typed.py",
        "    if unsupported is None:\n        return\n",
        "    return\n",
        tests=("tests/unit/serdes/test_model_serdes.py",),
    ),
    mutant(
        "pydantic models are serialized by field names instead of aliases",
        "serdes/_typed.py",
        ".model_dump_json(by_alias=True).encode()",
        ".model_dump_json(by_alias=False).encode()",
        tests=("tests/unit/serdes/test_model_serdes.py",),
    ),
    mutant(
        "topics of tables are created with the default cleanup policy",
        "topology/logical/table_nodes.py",
        "        topology._add_table_topic(self.topic)\n",
        "",
        tests=("tests/unit/tools/test_application_topics.py",),
    ),
    mutant(
        "the log counts windows as dropped records",
        "operators/aggregates/windowed_aggregation.py",
        "self.context.dropped(records, why, windows)",
        "self.context.dropped(windows, why)",
        tests=("tests/unit/testing/test_topology_test_driver.py",),
    ),
    mutant(
        "the URL of a broker is accepted as its address",
        "config/validation.py",
        "if found and scheme.upper() not in _PROTOCOLS:",
        "if False:",
        tests=("tests/unit/config/test_streams_config.py",),
    ),
    mutant(
        "the file takes precedence over the environment",
        "config/streams_config.py",
        "            layers,\n            settings,",
        "            layers[::-1],\n            settings,",
        tests=("tests/unit/config/test_config_environment.py",),
    ),
    mutant(
        "a resolved secret is shown",
        "config/references.py",
        "return SecretStr(text) if count else value",
        "return text",
        tests=("tests/unit/config/test_config_files.py",),
    ),
    mutant(
        "an error of a file lacks the line",
        "config/config_file.py",
        'return f"{path}, line {lines[found]}" if found else path',
        "return path",
        tests=("tests/unit/config/test_config_files.py",),
    ),
    mutant(
        "a misspelled attribute of a stream is None",
        "topology/dsl/migration_hints.py",
        "            raise AttributeError(_advice(type(self), name), name=name, obj=self)\n",
        "            return None\n",
        tests=("tests/unit/topology/test_hints.py",),
    ),
    mutant(
        "processors of a subscription receive serialized keys",
        "subscriptions/processing_context.py",
        "return raw if serde is None else serde.deserialize(self.place.topic, raw)",
        "return raw",
        tests=("tests/unit/subscriptions/test_partition.py",),
    ),
    mutant(
        "a record that a processor returns is ignored",
        "operators/process.py",
        "        if isinstance(result, records) or (",
        "        if False and (",
        tests=("tests/unit/operators/test_process_operator.py",),
    ),
    mutant(
        "a blocked event loop is not logged",
        "operators/concurrent/event_loop.py",
        "            self._log(frame, time.monotonic() - began)\n",
        "            pass\n",
        tests=("tests/unit/operators/concurrent/test_loop_watchdog.py",),
    ),
    mutant(
        "an application is not closed with its script",
        "app.py",
        "            close_with_script(self, self._states, self.close)\n",
        "",
        tests=("tests/unit/application/test_unclosed_applications.py",),
    ),
    mutant(
        "a client of map_async is closed while calls use it",
        "operators/concurrent/shared_resource.py",
        "            is_idle = self._calls == 0\n",
        "            is_idle = True\n",
        tests=("tests/unit/operators/concurrent/test_shared_resource.py",),
    ),
    mutant(
        "a client of map_async is never closed",
        "operators/concurrent/map_async.py",
        "                release(resource)\n",
        "                pass\n",
        tests=("tests/unit/operators/concurrent/test_shared_resource.py",),
    ),
)
