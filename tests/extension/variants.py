"""Builds of the extension for a sanitizer or another Python, beside a copy of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_LIBRARY: Final = "millstream/native/_native.abi3.so"


class VariantError(Exception):
    """A variant cannot be built or used here. The message contains the solution."""


@dataclass(frozen=True)
class Variant:
    """An interpreter, and a copy of the package with its own build of the extension.

    Args:
        folder: contains the copy; None for the installed package.
        environment: additional environment variables.
        wrapper: a program that runs the interpreter, with its arguments.
    """

    folder: Path | None = None
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)
    wrapper: Sequence[str] = ()

    def command(self, *arguments: str) -> list[str]:
        return [*self.wrapper, self.python, *arguments]

    def variables(self) -> dict[str, str]:
        """Return the environment of a process that uses the variant."""
        folders = [ROOT / "tests"] if self.folder is None else [self.folder, ROOT / "tests"]
        path = os.pathsep.join(map(str, folders))
        return {**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1", **self.environment}


def build(folder: Path, *, python: str = sys.executable, flags: Sequence[str] = ()) -> Path:
    """Copy the package to a folder, and build the extension in the copy; return the library.

    Args:
        python: the interpreter to build for; needs setuptools.
        flags: additional flags of the compiler and the linker.

    Raises:
        VariantError: the build failed.
    """
    shutil.copytree(
        ROOT / "src" / "millstream",
        folder / "millstream",
        ignore=shutil.ignore_patterns("__pycache__", "*.so"),
        dirs_exist_ok=True,
    )
    text = " ".join(flags)
    command = ["setup.py", "--quiet", "build_ext", "--force", "--build-lib", str(folder)]
    built = subprocess.run(
        [python, *command, "--build-temp", str(folder / "objects")],
        cwd=ROOT,
        env={**os.environ, "MILLSTREAM_SPEEDUPS": "require", "CFLAGS": text, "LDFLAGS": text},
        capture_output=True,
        text=True,
    )
    library = folder / _LIBRARY
    if built.returncode != 0 or not library.is_file():
        raise VariantError(f"The extension could not be built:\n{built.stdout}{built.stderr}")
    return library


#: `alloc_dealloc_mismatch` is disabled because librdkafka and RocksDB, which are not instrumented,
#: allocate memory with another operator.
_ASAN_OPTIONS: Final = (
    "detect_leaks=0:abort_on_error=1:alloc_dealloc_mismatch=0:handle_segv=1:"
    "detect_stack_use_after_return=1:allocator_may_return_null=1"
)
_UBSAN_OPTIONS: Final = "print_stacktrace=1:halt_on_error=1:abort_on_error=1"


def sanitized(folder: Path) -> Variant:
    """Build the extension with AddressSanitizer and UndefinedBehaviorSanitizer.

    Raises:
        VariantError: there is no compiler, or it has no libasan.
    """
    compiler = shutil.which("gcc")
    if compiler is None:
        raise VariantError("There is no gcc. Install it (on Debian and Ubuntu: gcc).")
    runtimes = []
    for name in ("libasan.so", "libubsan.so"):
        found = subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        if not Path(found).is_absolute():
            raise VariantError(
                f"There is no {name} for {compiler}. Install it (on Debian and Ubuntu: "
                "libgcc-12-dev, with the version of the compiler)."
            )
        runtimes.append(str(Path(found).resolve()))
    build(
        folder,
        flags=["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1"]
        + ["-fno-omit-frame-pointer"],
    )
    return Variant(
        folder,
        environment={
            "LD_PRELOAD": " ".join(runtimes),
            # Each object gets its own memory block, which the sanitizer observes.
            "PYTHONMALLOC": "malloc",
            "ASAN_OPTIONS": _ASAN_OPTIONS,
            "UBSAN_OPTIONS": _UBSAN_OPTIONS,
        },
    )
