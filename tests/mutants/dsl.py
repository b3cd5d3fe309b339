"""Faults in topologies and their operators (`topology`, `operators`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_SINKS = ("tests/unit/runtime/task/test_sinks.py",)
_TABLES = ("tests/unit/topology/dsl/test_tables.py",)
_EDGES = ("tests/unit/operators/test_join_edges.py",)
_OPTIMIZED = ("tests/unit/topology/test_optimized_processors.py",)
_DRIVER = ("tests/unit/testing/test_topology_test_driver.py",)

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "A record only goes to the first of its partitions",
        "runtime/task/sinks.py",
        "return tuple(sorted(set(chosen))) if several else chosen",
        "return tuple(sorted(set(chosen)))[:1] if several else chosen",
        tests=_SINKS,
    ),
    mutant(
        "A partition that is chosen twice gets a record twice",
        "runtime/task/sinks.py",
        "return tuple(sorted(set(chosen))) if several else chosen",
        "return tuple(sorted(chosen)) if several else chosen",
        tests=_SINKS,
    ),
    mutant(
        "Records without a partition are not counted",
        "runtime/task/sinks.py",
        "        if 0 in counts:\n",
        "        if not counts:\n",
        tests=_SINKS,
    ),
    mutant(
        "The test driver does not check explicit partition counts",
        "testing/driver_topics.py",
        "        return self._partition_counts.get(topic)\n",
        "        return None\n",
        tests=_DRIVER,
    ),
    mutant(
        "A table's topic is read without the serde of its Materialized",
        "topology/dsl/builder.py",
        "    return choice.key if key is None else key, choice.value if value is None else value\n",
        "    return key, value\n",
        tests=_TABLES,
    ),
    mutant(
        "A row stays in its group if the selector returns None",
        "operators/tables/table_aggregate.py",
        "        if from_group is not None:\n            keys.append(from_group[0])\n",
        "        if from_group is not None and to_group is not None:\n"
        "            keys.append(from_group[0])\n",
        tests=_TABLES,
    ),
    mutant(
        "Stores of joins lose the last millisecond in RocksDB",
        "state/windows/duplicate_windows.py",
        "        if retention_inclusive:\n",
        "        if not retention_inclusive:\n",
        tests=_EDGES,
    ),
    mutant(
        "Stores of joins lose the last millisecond in memory",
        "state/opening/store_layers.py",
        "builder.retention_ms + builder.retention_inclusive",
        "builder.retention_ms",
        tests=_EDGES,
    ),
    mutant(
        "A self-join loses records in windows of zero length",
        "operators/joins/stream_join.py",
        "waits = timestamp >= self._stream_time - self._retention_ms",
        "waits = timestamp > self._stream_time - self._retention_ms",
        tests=_EDGES,
    ),
    mutant(
        "A repartition topic is inserted before process()",
        "topology/dsl/stream_process.py",
        "        changes_key=not fixed_key,\n",
        "        changes_key=fixed_key,\n",
        tests=_OPTIMIZED,
    ),
    mutant(
        "A repartition topic is inserted before process_values()",
        "topology/dsl/stream_process.py",
        "        changes_value=True,\n",
        "        changes_value=False,\n",
        tests=_OPTIMIZED,
    ),
    mutant(
        "A group subtracts values that suppress never forwarded",
        "state/buffers/time_ordered_buffer.py",
        "        return value.prior\n",
        "        return value.old\n",
        tests=("tests/unit/operators/test_suppressed_groups.py",),
    ),
    mutant(
        "Two processes get each other's tasks as standbys",
        "assignment/placement/sticky.py",
        "                not any(other.has(beside) for other in having)\n",
        "                any(other.has(beside) for other in having)\n",
        tests=("tests/unit/assignment/test_sticky_and_threads.py",),
    ),
    mutant(
        "Key ranges of final windows are read by time",
        "state/windows/segmented_windows.py",
        "        return every_key and self._time_ordered and self._layout is WINDOWS\n",
        "        return self._time_ordered and self._layout is WINDOWS\n",
        tests=_DRIVER,
    ),
    mutant(
        "All final windows are read by key",
        "state/windows/segmented_windows.py",
        "        return every_key and self._time_ordered and self._layout is WINDOWS\n",
        "        return False\n",
        tests=_DRIVER,
    ),
    mutant(
        "An unbounded key range of final windows is read by time",
        "state/windows/window_store.py",
        '        lowest = b"" if lo is None else self._key(lo)\n',
        "        lowest = None if lo is None else self._key(lo)\n",
        tests=_DRIVER,
    ),
)
