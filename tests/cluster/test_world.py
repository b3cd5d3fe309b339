"""Hosts that tests make: they are hosts to each other, and nothing of them stays."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import pytest
from support.cluster import world
from support.cluster.world import hindrance
from support.machine.scripts import Program
from support.waiting import wait_for

TESTS = Path(__file__).parents[1]

#: Two hosts with a server on one of them. What they are asked ends with `done`.
HOSTS = """
import sys
from pathlib import Path
from support.cluster.hosts import STATE, Network
from support.waiting import wait_for

folder = Path(sys.argv[1])
network = Network(folder, folder)
one, two = network.add("one", disk_mb=1), network.add("two", disk_mb=1)
server = one.start("python3", "-m", "http.server", "8000", "--bind", "one")


def answers():
    ask = "import urllib.request as r; r.urlopen('http://one:8000', timeout=1); print('yes')"
    asked = two.start("python3", "-c", ask)
    asked.wait_ended(10)
    return asked.lines == ["yes"]


wait_for(answers, 30)
one.cut()
assert not answers()
one.mend()
wait_for(answers, 30)
with one.slowed():
    assert answers()
with one.full_disk():
    refused = one.start("sh", "-c", f"echo something > {STATE}/file")
    assert refused.wait_ended(10) != 0
one.do("sh", "-c", f"echo something > {STATE}/file")
assert one.do("hostname") == "one\\n" and one.processes("http.server")
one.die()
assert not answers()
one.boot()
assert one.do("cat", f"{STATE}/file") == "something\\n" and not one.processes("http.server")
print("done", flush=True)
sys.stdin.read()
"""


def test_hosts_are_cut_and_die_and_nothing_stays(tmp_path: Path) -> None:
    """Goal: what the tests of a cluster rest on: names, links, disks, power.

    Method: a SIGKILL to what made them ends every process of theirs, and so all else.
    """
    reason = hindrance()
    if reason is not None:
        pytest.skip(f"There can be no hosts: {reason}")
    before = Path("/proc/net/dev").read_text().count(":")
    inside = (sys.executable, "-c", HOSTS, tmp_path)
    command = (sys.executable, "-m", "support.cluster.world", *inside)
    with Program(*command, environment={"PYTHONPATH": str(TESTS)}) as program:
        program.wait_for_line("done")
        assert processes_with(str(tmp_path))
        program.signal_group(signal.SIGKILL)
        wait_for(lambda: not processes_with(str(tmp_path)), 20, "all processes are gone")
    assert Path("/proc/net/dev").read_text().count(":") == before


def processes_with(word: str) -> list[str]:
    """The processes in whose command line a word is."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes()
        except OSError:
            continue
        if word.encode() in command:
            found.append(process.parent.name)
    return found


def test_who_may_make_no_hosts_hears_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """A skip without a reason looks like a success."""
    monkeypatch.setattr("os.geteuid", lambda: 1_000)
    if shutil.which("unshare") is not None:
        assert hindrance() == "namespaces are made by root, which this is not"
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert hindrance() == "there is no `unshare`"
    assert not world.is_inside()
