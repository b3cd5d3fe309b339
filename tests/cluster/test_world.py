"""Simulated hosts: they reach each other over a network, and leave nothing behind."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import pytest
from support.cluster import world
from support.cluster.world import unavailable_reason
from support.machine.scripts import Program
from support.waiting import wait_for

TESTS = Path(__file__).parents[1]

#: A program with two hosts and a server on one of them. It prints `done` after its checks.
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
    code = "import urllib.request as r; r.urlopen('http://one:8000', timeout=1); print('yes')"
    request = two.start("python3", "-c", code)
    request.wait_ended(10)
    return request.lines == ["yes"]


wait_for(answers, 30)
one.cut()
assert not answers()
one.restore_link()
wait_for(answers, 30)
with one.slow_link():
    assert answers()
with one.full_disk():
    write = one.start("sh", "-c", f"echo something > {STATE}/file")
    assert write.wait_ended(10) != 0
one.run("sh", "-c", f"echo something > {STATE}/file")
assert one.run("hostname") == "one\\n" and one.processes("http.server")
one.power_off()
assert not answers()
one.boot()
assert one.run("cat", f"{STATE}/file") == "something\\n" and not one.processes("http.server")
print("done", flush=True)
sys.stdin.read()
"""


def test_hosts_can_be_disconnected_and_killed_without_leftovers(tmp_path: Path) -> None:
    """Goal: names, links, disks and power of hosts work as the cluster tests expect.

    Method: a SIGKILL of the creating process ends all processes of the hosts and everything else.
    """
    reason = unavailable_reason()
    if reason is not None:
        pytest.skip(f"Hosts cannot be created: {reason}")
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
    """The processes with a word in their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes()
        except OSError:
            continue
        if word.encode() in command:
            found.append(process.parent.name)
    return found


def test_unavailable_hosts_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A skip needs a reason."""
    monkeypatch.setattr("os.geteuid", lambda: 1_000)
    if shutil.which("unshare") is not None:
        assert unavailable_reason() == "only root can create namespaces"
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert unavailable_reason() == "there is no `unshare`"
    assert not world.is_inside()
