"""The tutorial, word for word."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.docs.following import Reader, StepFailedError, steps
from support.machine.empty import LEADING
from support.machine.wheels import built_here

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


@pytest.mark.slow
def test_the_tutorial_can_be_followed(tmp_path: Path) -> None:
    """Goal: each step of it works and shows what it says, in this environment."""
    environment = dict(os.environ)
    # Commands are those of this environment.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    Reader(TUTORIAL, tmp_path, environment).follow(leave_out=(0,))


@pytest.mark.slow
def test_the_tutorial_can_be_followed_from_its_first_step(tmp_path: Path) -> None:
    """Goal: on a machine with Python and Java only. The name that it tells to install is that of
    the wheel as it would be released."""
    environment = {name: value for name, value in os.environ.items() if name not in LEADING}
    dist = built_here(tmp_path / "dist").wheel.parent
    # Where the name is looked for besides the index, which does not have it.
    places = [environment.get("PIP_FIND_LINKS", ""), str(dist)]
    environment["PIP_FIND_LINKS"] = " ".join(filter(None, places))
    folder = tmp_path / "shop"
    folder.mkdir()
    python = Path(sys.base_prefix, "bin")
    environment["PATH"] = os.pathsep.join([str(python), environment["PATH"]])
    Reader(TUTORIAL, folder, environment, before="[ ! -e .venv ] || . .venv/bin/activate").follow()


def test_every_block_is_a_step_or_said_to_be_none() -> None:
    """A command that the reader is told to type, and that the test does not run, proves nothing."""
    text = TUTORIAL.read_text(encoding="utf-8")
    fences = text.count("\n```") // 2
    # One opens a page in a browser.
    assert len(list(steps(TUTORIAL))) == fences - 1


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("<!-- run -->\n```sh\nfalse\n```\n", "fails with 1"),
        (
            "<!-- run -->\n```sh\necho tea\n```\n\n<!-- expect -->\n```\nmug\n```\n",
            "'mug' is not in",
        ),
        ('<!-- run: in the background, until "x" -->\n```sh\ntrue\n```\n', "has ended"),
        ("<!-- stop: sleep 9 -->\n```\n```\n", "does not run"),
    ],
)
def test_a_wrong_page_is_noticed(page: str, wrong: str, tmp_path: Path) -> None:
    """Each kind of step fails when it is not so."""
    path = tmp_path / "page.md"
    path.write_text(page)
    with pytest.raises(StepFailedError, match=wrong):
        Reader(path, tmp_path).follow()
