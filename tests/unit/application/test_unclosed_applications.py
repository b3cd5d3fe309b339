"""Applications whose program ends without closing them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
from millstream import KafkaStreams, StreamsBuilder, StreamsConfig
from millstream.application.supervisor import ThreadSupervisor
from millstream.serdes import STRING

# No broker and no Spark: the end of the program is what matters.
ThreadSupervisor.start = lambda self: None
builder = StreamsBuilder()
builder.stream("in", key=STRING, value=STRING).to("out")
config = StreamsConfig(application_id="left-alone", bootstrap_servers="x:1", state_dir={folder!r})
streams = KafkaStreams(builder.build(), config)
streams.start()
{end}
"""


@pytest.mark.parametrize(("end", "warns"), [("", True), ("streams.close()", False)])
def test_a_program_that_ends_after_start(tmp_path: Path, end: str, warns: bool) -> None:
    """start() does not block, so the application is closed with its program, which logs a
    warning."""
    script = tmp_path / "shop.py"
    script.write_text(_SCRIPT.format(folder=str(tmp_path), end=end))
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ("left-alone" in done.stderr) is warns
    if warns:
        assert "started at shop.py:12> was not closed before its script ended" in done.stderr
        assert "call run()" in done.stderr
