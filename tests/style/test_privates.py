"""Tests use what the package offers: who reaches for what is private is listed here, with why."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = {
    str(path.relative_to(TESTS)): path
    for path in sorted(TESTS.rglob("*.py"))
    if "vendored" not in path.parts
}

#: The engine's side of a `Topology`: for all of the package, private to users only.
ENGINES = {
    "_add_internal_topic",
    "_changelog_topics",
    "_check_copartition",
    "_copartition",
    "_copartition_groups",
    "_logical_plan",
    "_subtopologies",
}

#: Of the standard library and of librdkafka: names that only look private.
OTHERS = {
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

#: By file the names, where a test of that very module has no other way.
ALLOWED: dict[str, set[str]] = {
    # What happens inside a member, a client or a broker at the moment that the test needs.
    "integration/kafka/test_admin.py": {"_client"},
    "integration/embedded/test_embedded_kafka.py": {"_guard", "_home"},
    "integration/kafka/test_member.py": {"_life", "_watch"},
    "integration/kafka/test_member_failures.py": {
        "_generation",
        "_give_up",
        "_life",
        "_on_join_complete_async",
        "_without_progress",
    },
    # Tests spare a processor what a broker that lives longer gains by.
    "conftest.py": {"_JVM_OPTIONS"},
    # As the server does that comes with the application.
    "support/running/peer_server.py": {"_asked"},
    "integration/spark/test_spark_engine.py": {"_patience", "_server"},
    "unit/kafka/test_librdkafka_log.py": {"_seen"},
    "unit/kafka/test_offset_errors.py": {"_out_of_range_error"},
    "unit/runtime/test_thread_clients.py": {"_most_bytes"},
    "unit/spark/test_control.py": {"_commands", "_conversation", "_sent_frames"},
    "unit/spark/test_jobs.py": {"_translated"},
    # The supervisor of an application, whose threads are not started.
    "integration/runtime/test_clear_errors.py": {"_config"},
    "integration/application/test_closing.py": {"_supervisor"},
    "unit/application/test_replacing_threads.py": {
        "_crew",
        "_engine",
        "_on_event",
        "_take_directory",
    },
    "unit/application/test_restore_audience.py": {"_main", "_process_id", "_supervisor"},
    "unit/application/test_restore_bars.py": {"_progress"},
    # What an application would be told by its threads is told to it, and what it shows is read.
    "integration/server/test_console.py": {"_config", "_serving", "_supervisor"},
    "unit/application/test_overdue_commits.py": {"_on_event", "_supervisor"},
    "unit/application/test_serving.py": {"_asked", "_config", "_supervisor"},
    "support/running/thread_run.py": {"_tasks"},
    "support/running/topologies/console_sample.py": {"_clock", "_thread_is"},
    "unit/application/view/test_document.py": {"_served", "_serving"},
    # What a subscription is made of, to be run without Spark, or asked for its processes.
    "integration/parallel/test_subscriptions.py": {"_streams"},
    "support/running/parallel_instance.py": {"_streams"},
    "support/running/topologies/subscribed.py": {"_config", "_streams", "_supervisor", "_topology"},
    # Its file of properties is looked at just then.
    "unit/parallel/test_subscription_arguments.py": {"_watch"},
    # Bugs are put where they would be.
    "simulation/planted_calls.py": {"_apply"},
    "simulation/planted.py": {"_forget", "_make_active"},
    # A round of the loop, and the opening of a task, by themselves.
    "unit/runtime/loop/test_many_tasks.py": {"_last_commit_ms", "_process"},
    "unit/runtime/ownership/test_untrusted_state.py": {"_open", "_opening"},
    # What lies below a store, and disks that fail.
    "properties/test_buffer_state_model.py": {"_base"},
    "unit/state/test_key_value_store.py": {"_stores"},
    "unit/state/caches/test_record_cache.py": {"_eviction", "_resting"},
    "unit/state/storage/test_rocksdb_storage.py": {"_db"},
    "unit/state/test_task_stores.py": {"_builders", "_directory"},
    "unit/topology/test_streams_dsl.py": {"_part"},
}


def privates(path: Path) -> Iterator[str]:
    """The private names that are taken from other modules, and from what these have made."""
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


@pytest.mark.parametrize("name", FILES)
def test_private_names_are_used_for_a_reason(name: str) -> None:
    """What is on the list is used, and nothing else is."""
    assert set(privates(FILES[name])) - ENGINES - OTHERS == ALLOWED.get(name, set())


def test_what_is_listed_exists() -> None:
    """Files that have gone are on no list."""
    assert set(ALLOWED) <= set(FILES)
