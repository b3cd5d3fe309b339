"""Tests use the public parts of modules; the exceptions are listed here, with the reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
FILES = {
    str(path.relative_to(TESTS)): path
    for path in sorted(TESTS.rglob("*.py"))
    if "vendored" not in path.parts
}

#: The internal part of a `Topology`: used by the whole package, private only to users.
TOPOLOGY_INTERNALS = {
    "_add_internal_topic",
    "_changelog_topics",
    "_copartitioned",
    "_logical_plan",
    "_subtopologies",
}

#: Names of the standard library and of librdkafka that only look private.
EXTERNAL = {
    *("_asdict", "_exit", "_fields", "_getframe", "_make", "_replace"),
    *(
        "_AUTO_OFFSET_RESET",
        "_FENCED",
        "_INVALID_DIFFERENT_RECORD",
        "_MSG_TIMED_OUT",
        "_PARTITION_EOF",
        "_PURGE_INFLIGHT",
        "_PURGE_QUEUE",
        "_TIMED_OUT",
        "_TRANSPORT",
    ),
}

#: The allowed names by file, for tests that have no other way.
ALLOWED: dict[str, set[str]] = {
    # The JVM of an earlier session in this process.
    "docs/test_on_a_broker.py": {"_gateway", "_jvm"},
    # The internal state of a member, a client or a broker at a certain time.
    "integration/kafka/test_admin.py": {"_client"},
    "integration/embedded/test_embedded_kafka.py": {"_guard", "_home"},
    "integration/kafka/test_member.py": {"_membership", "_topic_monitor"},
    "integration/kafka/test_member_failures.py": {
        "_generation",
        "_membership",
        "_on_join_complete_async",
        "_revoke",
        "_without_progress",
    },
    # JVM options for short-lived brokers.
    "conftest.py": {"_JVM_OPTIONS"},
    # Used like in the application's own server.
    "support/running/peer_server.py": {"_query_client"},
    "integration/spark/test_spark_engine.py": {"_server", "_timeouts"},
    "unit/kafka/test_librdkafka_log.py": {"_seen"},
    "unit/kafka/test_offset_errors.py": {"_out_of_range_error"},
    "unit/runtime/test_thread_clients.py": {"_max_bytes"},
    "unit/spark/connection/test_control.py": {"_commands", "_reliable_channel", "_sent_frames"},
    "unit/spark/test_jobs.py": {"_to_spark_error"},
    # The supervisor of an application without started threads.
    "integration/runtime/test_clear_errors.py": {"_config"},
    "integration/application/test_closing.py": {"_supervisor"},
    "unit/application/test_replacing_threads.py": {
        "_stream_threads",
        "_engine",
        "_on_event",
        "_take_directory",
    },
    "unit/application/test_restore_listeners.py": {"_main", "_process_id", "_supervisor"},
    "unit/application/test_restore_bars.py": {"_progress"},
    # Reports of threads are simulated, and the resulting state is read.
    "integration/server/test_console.py": {"_config", "_http_server", "_supervisor"},
    "unit/application/test_overdue_commits.py": {"_on_event", "_supervisor"},
    "unit/application/test_serving.py": {"_config", "_query_client", "_supervisor"},
    "support/running/thread_run.py": {"_tasks"},
    "support/running/topologies/console_sample.py": {"_clock", "_set_thread_state"},
    "unit/application/console/test_document.py": {"_application", "_http_server"},
    # The parts of a subscription, to run it without Spark or to inspect its processes.
    "integration/concurrent/test_subscriptions.py": {"_streams"},
    "support/running/parallel_instance.py": {"_streams"},
    "support/running/topologies/subscribed.py": {"_config", "_streams", "_supervisor"},
    # The file of properties is checked at a certain time.
    "unit/subscriptions/test_subscription_arguments.py": {"_watcher"},
    # Bugs and kills are planted in private methods.
    "support/running/failpoints.py": {"_commit"},
    "simulation/planted_calls.py": {"_apply_properties"},
    "simulation/planted.py": {"_discard_writes", "_make_active"},
    # A single iteration of the loop, and the opening of a task.
    "unit/runtime/loop/test_many_tasks.py": {"_last_commit_ms", "_process"},
    "unit/runtime/task_management/test_untrusted_state.py": {"_open", "_pending_opens"},
    # The storage below a store, and failing disks.
    "properties/stores/test_buffer_state_model.py": {"_base"},
    "unit/state/test_key_value_store.py": {"_stores"},
    "unit/state/caches/test_record_cache.py": {"_eviction", "_encoded"},
    "unit/state/storage/test_rocksdb_storage.py": {"_db"},
    "unit/state/test_task_stores.py": {"_builders", "_directory"},
    # IPython calls this method.
    "unit/test_notebooks.py": {"_repr_mimebundle_"},
    "unit/topology/dsl/test_streams_dsl.py": {"_part"},
    "unit/topology/test_drawing.py": {"_topology"},
}


def privates(path: Path) -> Iterator[str]:
    """The private names that a file uses of other modules and their objects."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    own = {each.name for each in nodes if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    own |= {
        each.attr
        for each in nodes
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            yield from (each.name for each in node.names if each.name.startswith("_"))
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            is_selfs = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            is_supers = isinstance(node.value, ast.Call) and (
                isinstance(node.value.func, ast.Name) and node.value.func.id == "super"
            )
            if not (node.attr.startswith("__") or is_selfs or is_supers or node.attr in own):
                yield node.attr


def test_private_names_are_listed() -> None:
    """Every private name that a test uses is listed above, and every entry is in use."""
    used = {
        name: set(privates(path)) - TOPOLOGY_INTERNALS - EXTERNAL for name, path in FILES.items()
    }
    assert {name: names for name, names in used.items() if names} == ALLOWED
