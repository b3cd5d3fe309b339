"""Builds the C extension: one file for CPython 3.11 and all later versions."""

from __future__ import annotations

import tomllib
from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path(__file__).parent
#: Compiled in, so that a loaded library reports its own version.
VERSION = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]["version"]

setup(
    ext_modules=[
        Extension(
            "millstream_speedups._native",
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
            libraries=["dl"],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
