"""The tutorial works as written."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.docs.walkthrough import Reader, StepFailedError, steps
from support.machine.clean_environment import LEADING
from support.machine.wheels import built_here

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


@pytest.mark.slow
def test_the_tutorial_can_be_followed(tmp_path: Path) -> None:
    """Goal: each step works and has the output in the page, in this environment."""
    environment = dict(os.environ)
    # Use the commands of this environment.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    Reader(TUTORIAL, tmp_path, environment).follow(leave_out=(0,))


@pytest.mark.slow
def test_the_tutorial_can_be_followed_with_the_installation(tmp_path: Path) -> None:
    """Goal: the tutorial works on a machine with only Python and Java. The installed package is the
    wheel as it would be released."""
    environment = {name: value for name, value in os.environ.items() if name not in LEADING}
    dist = built_here(tmp_path / "dist").wheel.parent
    # pip searches these folders in addition to the index, which does not have the package.
    places = [environment.get("PIP_FIND_LINKS", ""), str(dist)]
    environment["PIP_FIND_LINKS"] = " ".join(filter(None, places))
    folder = tmp_path / "shop"
    folder.mkdir()
    python = Path(sys.base_prefix, "bin")
    environment["PATH"] = os.pathsep.join([str(python), environment["PATH"]])
    Reader(TUTORIAL, folder, environment, before="[ ! -e .venv ] || . .venv/bin/activate").follow()


def test_every_block_is_a_step() -> None:
    """The test must run every command in the page."""
    text = TUTORIAL.read_text(encoding="utf-8")
    fences = text.count("\n```") // 2
    # One block opens a page in a browser.
    assert len(list(steps(TUTORIAL))) == fences - 1


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("<!-- run -->\n```sh\nfalse\n```\n", "failed with exit code 1"),
        (
            "<!-- run -->\n```sh\necho tea\n```\n\n<!-- expect -->\n```\nmug\n```\n",
            "'mug' is not in",
        ),
        ('<!-- run: in the background, until "x" -->\n```sh\ntrue\n```\n', "has ended"),
        ("<!-- stop: sleep 9 -->\n```\n```\n", "is not running"),
    ],
)
def test_wrong_pages_are_detected(page: str, wrong: str, tmp_path: Path) -> None:
    """Each kind of step can fail."""
    path = tmp_path / "page.md"
    path.write_text(page)
    with pytest.raises(StepFailedError, match=wrong):
        Reader(path, tmp_path).follow()
