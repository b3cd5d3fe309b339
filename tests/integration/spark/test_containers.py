"""An application in a container: a user id without an entry, no home, a read-only /tmp."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from support.broker.topics import fill, read_all, unique
from support.machine.scripts import Program
from support.waiting import wait_for

from millstream.testing import EmbeddedKafka

#: Namespaces in which /tmp is read-only except for one folder, and the user id has no entry.
#: Outside, the user is the test's, who can read all files.
_ENTER = """
mount --make-rprivate / &&
mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp &&
mount --bind "$0" "$0" && mount -o remount,bind,rw "$0" &&
exec unshare --user --map-user=12345 --map-group=12345 -- "$@"
"""

APPLICATION = """
import sys
from millstream import KafkaStreams, StreamsBuilder, StreamsConfig
from millstream.serdes import STRING

if __name__ == "__main__":
    bootstrap, source, sink = sys.argv[1:]
    builder = StreamsBuilder()
    records = builder.stream(source, key=STRING, value=STRING)
    records.map_values(str.upper).to(sink, key=STRING, value=STRING)
    KafkaStreams(
        builder.build(), StreamsConfig(application_id=source, bootstrap_servers=bootstrap)
    ).run()
"""


def _inside(folder: Path, *command: str) -> list[str]:
    namespaces = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _ENTER]
    return [*namespaces, str(folder), "env", "-u", "HOME", "-u", "USER", "-u", "LOGNAME", *command]


@cache
def unavailable_reason() -> str | None:
    """The reason why this machine cannot create such namespaces; None if it can."""
    if shutil.which("unshare") is None:
        return "there is no `unshare`"
    trial = subprocess.run(_inside(Path("/tmp"), "id", "-un"), capture_output=True, text=True)
    # `id` fails because the user id has no name, the shell if mounts are not permitted.
    return None if "12345" in trial.stderr else trial.stderr.strip()


@pytest.mark.slow
def test_an_application_without_user_entry_home_and_writable_tmp(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Detects starts that fail with "basedir must be absolute" (Ivy), "invalid null input: name"
    (Hadoop) and "Read-only file system"."""
    if (reason := unavailable_reason()) is not None:
        pytest.skip(f"There can be no user namespaces: {reason}")
    source, sink = unique("contained"), unique("contained-out")
    kafka.create_topic(source)
    kafka.create_topic(sink)
    fill(kafka.bootstrap_servers, source, [(b"k", b"a"), (b"k", b"b")])
    program = tmp_path / "application.py"
    program.write_text(APPLICATION)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    python = (sys.executable, str(program), kafka.bootstrap_servers, source, sink)
    environment = {"TMPDIR": str(temporary)}
    with Program(*_inside(tmp_path, *python), environment=environment) as running:
        wait_for(
            lambda: read_all(kafka.bootstrap_servers, sink) == [(b"k", b"A"), (b"k", b"B")],
            120,
            lambda: f"results; stderr: {running.errors[-4_000:]}",
        )
        assert (temporary / "millstream-home-12345").is_dir()
