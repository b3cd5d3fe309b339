"""Builds of the extension for a sanitizer or another Python, beside a copy of the package."""

from __future__ import annotations

import os
import re
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
        folders = (self.folder, ROOT / "tests", os.environ.get("PYTHONPATH"))
        path = os.pathsep.join(str(folder) for folder in folders if folder)
        return {**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1", **self.environment}


def copy_package(folder: Path, *, with_extension: bool) -> Path:
    """Copy the package to a folder; return the copy."""
    patterns = ["__pycache__"] if with_extension else ["__pycache__", "*.so"]
    shutil.copytree(
        ROOT / "src" / "millstream",
        folder / "millstream",
        ignore=shutil.ignore_patterns(*patterns),
        dirs_exist_ok=True,
    )
    return folder / "millstream"


def build(
    folder: Path,
    *,
    python: str = sys.executable,
    flags: Sequence[str] = (),
    source: Path = ROOT,
) -> Path:
    """Copy the package to a folder, and build the extension in the copy; return the library.

    Args:
        python: the interpreter to build for; needs setuptools.
        flags: additional flags of the compiler and the linker.
        source: the folder of `setup.py` and `native/`.

    Raises:
        VariantError: the build failed.
    """
    copy_package(folder, with_extension=False)
    text = " ".join(flags)
    command = ["setup.py", "--quiet", "build_ext", "--force", "--build-lib", str(folder)]
    built = subprocess.run(
        [python, *command, "--build-temp", str(folder / "objects")],
        cwd=source,
        env={**os.environ, "MILLSTREAM_EXTENSION": "require", "CFLAGS": text, "LDFLAGS": text},
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


#: The packages that the tests of the extension need.
_PACKAGES: Final = (
    "confluent-kafka",
    "kafka-python",
    "rocksdict",
    "orjson",
    "msgspec",
    "cloudpickle",
    "click",
    "rich",
    "pytest",
    "hypothesis",
    "setuptools",
)


def debug_python(folder: Path) -> str:
    """Create an environment of a debug build of Python with the locked packages.

    Returns:
        The path of its interpreter.

    Raises:
        VariantError: there is no debug build of Python 3.11 or later, or pip fails.
    """
    minors = [sys.version_info.minor, *range(11, 20)]
    names = [f"python3.{minor}{suffix}" for minor in minors for suffix in ("-dbg", "d")]
    is_debug = (
        "import sys; sys.exit(not hasattr(sys, 'gettotalrefcount') or sys.version_info < (3, 11))"
    )
    for name in (*names, "python3-dbg", "python3d"):
        found = shutil.which(name)
        if found and subprocess.run([found, "-c", is_debug]).returncode == 0:
            break
    else:
        raise VariantError(
            "There is no debug build of Python 3.11 or later. Install it with its headers (on "
            "Debian and Ubuntu: python3-dbg and python3-venv)."
        )
    locked = re.findall(
        r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE
    )
    packages = [f"{name}=={version}" for name, version in locked if name in _PACKAGES]
    environment = folder / "debug-environment"
    python = str(environment / "bin" / "python")
    for command in (
        [found, "-m", "venv", str(environment)],
        [python, "-W", "ignore", "-m", "pip", "install", "--quiet", *packages],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise VariantError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return python


def sanitizer_runtimes() -> list[str]:
    """Return the libraries of both sanitizers, which a process must load first.

    Raises:
        VariantError: there is no gcc, or it has no sanitizers.
    """
    compiler = shutil.which("gcc")
    if compiler is None:
        raise VariantError("There is no gcc. Install it (on Debian and Ubuntu: gcc).")
    paths = []
    for name in ("libasan.so", "libubsan.so"):
        command = [compiler, f"-print-file-name={name}"]
        path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        if not Path(path).is_absolute():
            raise VariantError(
                f"There is no {name} for {compiler}. Install it (on Debian and Ubuntu: the package "
                "libgcc-N-dev of the compiler's version N)."
            )
        paths.append(str(Path(path).resolve()))
    return paths


def sanitized(folder: Path, source: Path = ROOT) -> Variant:
    """Build the extension with AddressSanitizer and UndefinedBehaviorSanitizer.

    Raises:
        VariantError: there is no gcc, or it has no sanitizers.
    """
    runtimes = sanitizer_runtimes()
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1"]
    build(folder, flags=[*flags, "-fno-omit-frame-pointer"], source=source)
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
