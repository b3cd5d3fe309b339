"""Builds the C extension, if this machine can: one library for CPython 3.11 and all later versions.

Without a C compiler or Python's headers, the package is built without the extension, and Python
code replaces it. The environment variable `MILLSTREAM_EXTENSION` changes this: with `require`, the
build fails without the extension; with `omit`, it never contains the extension.
"""

from __future__ import annotations

import os
import runpy
import shlex
import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path(__file__).parent
#: Compiled in, so that a loaded library reports its own version.
VERSION = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]["version"]
MODE = os.environ.get("MILLSTREAM_EXTENSION", "")


def obstacle() -> str | None:
    """Return why the extension cannot be built here, or None."""
    # The package cannot be imported, because its requirements are not installed yet.
    package = runpy.run_path(str(FOLDER / "src" / "millstream" / "native" / "__init__.py"))
    if unsupported := package["unsupported"]():
        return f"it {unsupported}"
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(shlex.split(compiler)[0]) is None:
        return f"there is no C compiler ({compiler}); on Debian, install gcc"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "Python's headers are missing; on Debian, install python3-dev"
    return None


def extensions() -> list[Extension]:
    """Return the extension, or nothing if it is not wanted or cannot be built.

    Raises:
        SystemExit: it is required, but cannot be built.
    """
    if MODE not in ("", "require", "omit"):
        raise SystemExit(f"MILLSTREAM_EXTENSION={MODE}: expected require, omit or nothing.")
    if MODE == "omit":
        return []
    if (reason := obstacle()) is not None:
        if MODE == "require":
            raise SystemExit(f"The C extension of Millstream cannot be built: {reason}.")
        print(f"Building Millstream without its C extension: {reason}.", file=sys.stderr)
        return []
    return [
        Extension(
            "millstream.native._native",
            sources=sorted(f"native/{path.name}" for path in FOLDER.glob("native/*.c")),
            depends=sorted(f"native/{path.name}" for path in FOLDER.glob("native/*.h")),
            define_macros=[
                ("Py_LIMITED_API", "0x030B0000"),
                ("_GNU_SOURCE", "1"),
                ("MILLSTREAM_VERSION", f'"{VERSION}"'),
            ],
            # Other libraries in the process may have functions with the same names.
            extra_compile_args=[
                "-std=c11",
                "-O2",
                "-Wall",
                "-Wextra",
                "-pthread",
                "-fvisibility=hidden",
            ],
            extra_link_args=["-pthread"],
            libraries=["dl"] if sys.platform == "linux" else [],
            py_limited_api=True,
            optional=MODE != "require",
        )
    ]


found = extensions()
setup(
    ext_modules=found,
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if found else {},
)
