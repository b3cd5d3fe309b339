"""The fuzzer finds no faults in the extension, and finds and reduces planted ones."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support.strictness import needed_speedups

from extension.campaign import Campaign, reduced
from extension.cases.client_columns import BOOTSTRAP
from extension.cases.targets import CLIENTS, LOCAL, TARGETS, trace_of
from extension.cases.values import Trace
from extension.variants import Variant, copy_package
from millstream.testing import EmbeddedKafka

CASES = 12


def test_the_extension_and_python_agree() -> None:
    """A few cases of each target of `make fuzz-native`."""
    needed_speedups()
    campaign = Campaign(Variant(), 1, LOCAL)
    campaign.run(0, each=CASES)
    assert campaign.failures == []
    assert campaign.counts == dict.fromkeys(LOCAL, CASES)


def test_records_on_a_broker_agree(kafka: EmbeddedKafka) -> None:
    needed_speedups()
    variant = Variant(environment={BOOTSTRAP: kafka.bootstrap_servers})
    campaign = Campaign(variant, 1, [CLIENTS])
    campaign.run(0, each=2)
    assert campaign.failures == []
    assert campaign.counts == {CLIENTS: 2}


@pytest.mark.parametrize("target", TARGETS)
def test_traces_are_determined_by_their_names(target: str) -> None:
    """Traces are literals, so that they can be printed and passed to the child process."""
    for number in range(5):
        trace = trace_of(target, f"1/{target}/{number}")
        assert trace == trace_of(target, f"1/{target}/{number}")
        assert ast.literal_eval(repr(trace)) == trace


def planted(folder: Path, module: str, old: str, new: str) -> Variant:
    """A copy of the package with a fault in its Python code."""
    path = copy_package(folder, with_extension=True) / module
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    return Variant(folder)


def test_a_difference_is_reduced(tmp_path: Path) -> None:
    """Method: Python's `mark_flushed` does not reset the headers of an entry."""
    needed_speedups()
    module = "state/caches/cache_entries.py"
    variant = planted(tmp_path, module, "        entry.headers = ()\n", "")
    campaign = Campaign(variant, 1, ["structures"])
    campaign.run(0, each=500)
    (failure,) = campaign.failures
    assert "state after ('flushed'" in failure.faults[0]
    assert failure.reduced is not None
    assert len(failure.reduced) <= 4
    assert failure.reduced[-1][0] == "flushed"


def test_a_crash_is_reported_with_its_case(tmp_path: Path) -> None:
    """Method: Python's hash function reads address 0."""
    needed_speedups()
    line = "def pure_murmur3_128(data: bytes) -> bytes:\n"
    crash = "    import ctypes; data and ctypes.string_at(0)\n"
    module = "operators/joins/foreign_key_formats.py"
    variant = planted(tmp_path, module, line, line + crash)
    campaign = Campaign(variant, 1, ["functions"], max_reduction_s=0)
    campaign.run(0, each=50)
    (failure,) = campaign.failures
    assert "SIGSEGV" in failure.faults[0]
    assert "in pure_murmur3_128" in failure.faults[0]
    assert failure.case.startswith("1/functions/")


def test_lists_within_a_trace_are_reduced() -> None:
    def fails(trace: Trace) -> bool:
        return any(step[0] == "a" and 3 in step[1] for step in trace)

    trace = [("b", [1]), ("a", [1, 2, 3, 4]), ("a", [5]), ("c", [3])]
    assert reduced(trace, fails) == [("a", [3])]
