"""Sanitizers and leak measurements find nothing in the extension, and find planted faults."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.strictness import needed_speedups

from extension.campaign import Campaign
from extension.leaks import BATCH, LOADS, growth
from extension.sanitize import blocks_of
from extension.variants import (
    ROOT,
    Variant,
    VariantError,
    build,
    sanitized,
    sanitizer_runtimes,
)

TARGETS = ("structures", "indexes", "loops", "hostile")
CASES = 6


@pytest.fixture
def runtimes() -> None:
    needed_speedups()
    try:
        sanitizer_runtimes()
    except VariantError as error:
        pytest.skip(f"There are no sanitizers: {error}")


@pytest.mark.extended
@pytest.mark.usefixtures("runtimes")
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    """A few cases of the part `address` of `make sanitize`."""
    campaign = Campaign(sanitized(tmp_path), 1, TARGETS)
    campaign.run(0, each=CASES)
    assert campaign.failures == []
    assert campaign.counts == dict.fromkeys(TARGETS, CASES)


def test_no_function_keeps_memory() -> None:
    needed_speedups()
    command = [sys.executable, "-m", "extension.leaks", "--records", "4000"]
    done = subprocess.run(command, env=Variant().variables(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": ok") >= len(LOADS)


def test_a_leak_is_measured() -> None:
    kept: list[object] = []

    def load() -> int:
        kept.extend([index] for index in range(BATCH))
        return BATCH

    found = growth(load, 10 * BATCH)
    assert found.is_leak
    assert 0.9 < found.blocks < 3


def test_only_errors_of_the_extension_are_reported() -> None:
    text = "leak\n#0 malloc\n#1 python\n\nleak\n#0 malloc\n#1 x/_native.abi3.so\n\nend"
    assert blocks_of(text, r"\n\n") == ["leak\n#0 malloc\n#1 x/_native.abi3.so"]


def sources_with(folder: Path, file: str, old: str, new: str) -> Path:
    """A copy of the sources of the extension with a fault."""
    shutil.copytree(ROOT / "native", folder / "native")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    (folder / "src").symlink_to(ROOT / "src")
    path = folder / "native" / file
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    return folder


#: A change of the sources, the target that reaches it, and a part of the sanitizer's report.
FAULTS = {
    "an entry without a reference": (
        ("eviction.c", "    Py_INCREF(object);\n    return 0;\n", "    return 0;\n"),
        "hostile",
        "heap-use-after-free",
    ),
    "a read beyond the slots": (
        ("entry_table.c", "PyMem_Calloc(larger, ", "PyMem_Calloc(larger - 1, "),
        "structures",
        "heap-buffer-overflow",
    ),
    "a shift by too many bits": (
        ("bytes.c", "(uint64_t)bytes[index] << (8 * index)", "bytes[index] << (8 * index)"),
        "functions",
        "runtime error: left shift",
    ),
}


@pytest.mark.slow
@pytest.mark.usefixtures("runtimes")
@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(tmp_path: Path, name: str) -> None:
    """Goal: the sanitizers are active, and the targets reach the code."""
    fault, target, text = FAULTS[name]
    source = tmp_path / "source"
    source.mkdir()
    variant = sanitized(tmp_path / "variant", sources_with(source, *fault))
    campaign = Campaign(variant, 1, [target], max_reduction_s=0)
    campaign.run(0, each=2_000)
    (failure,) = campaign.failures
    assert text in "\n".join(failure.faults)


@pytest.mark.slow
def test_a_planted_leak_is_measured(tmp_path: Path) -> None:
    """Method: a loop does not release the previous value of an entry."""
    needed_speedups()
    source = tmp_path / "source"
    source.mkdir()
    old = "        Py_XDECREF(current);\n        Py_XDECREF(value);\n"
    sources_with(source, "fold.c", old, "        Py_XDECREF(value);\n")
    build(tmp_path / "variant", source=source)
    command = [sys.executable, "-m", "extension.leaks", "--records", "4000"]
    environment = Variant(tmp_path / "variant").variables()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    leaks = [line.partition("  ")[0] for line in done.stdout.splitlines() if line.endswith("LEAK")]
    assert leaks == ["fold_entries", "fold_entries, copies", "invalid arguments"]
