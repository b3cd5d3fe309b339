"""The files of a release: sdist and wheels, built from this checkout."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

#: The checkout.
ROOT = Path(__file__).parents[3]


class Built(NamedTuple):
    """The files of a release.

    Attributes:
        wheel: the wheel for this platform, with the C extension; `pure` if this machine cannot
            build the extension.
        pure: the wheel for all platforms, without the C extension.
    """

    wheel: Path
    pure: Path
    sdist: Path


def built_here(folder: Path) -> Built:
    """Build all files from this checkout, without a package index.

    The platform wheel has the tag of this machine instead of that of a released wheel.
    """
    ran = subprocess.run(
        ["sh", ".ci/wheels", "--unrepaired", str(folder)],
        cwd=ROOT,
        env={"MILLSTREAM_EXTENSION": "", **os.environ},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (pure,) = folder.glob("*-none-any.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return Built(next(folder.glob("*-abi3-*.whl"), pure), pure, sdist)
