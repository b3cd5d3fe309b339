"""Hosts of a world: each with its own network interface, name, processes and disk."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import CDLL, get_errno
from pathlib import Path
from typing import TypeVar

from support.machine.scripts import Program

T = TypeVar("T")

_BRIDGE = "world0"
_NET = "10.123.0"
_TIMEOUT_S = 30
_CLONE_NEWNET = 0x40000000

#: A host's disk, Spark, provided files, and working folder.
STATE, SPARK, FILES, WORK = (Path("/mnt", each) for each in ("state", "spark", "files", "work"))


class Network:
    """A bridge that connects all hosts and this process.

    Args:
        folder: an empty one, for disks and the hosts file.
        spark: the folder with Spark, mounted on every host.
    """

    def __init__(self, folder: Path, spark: Path) -> None:
        self.folder = folder
        self._spark = spark
        self._names = folder / "hosts"
        self._names.write_text("127.0.0.1 localhost\n")
        self._numbers = itertools.count(2)
        self.hosts: list[Host] = []
        _do("ip", "link", "add", _BRIDGE, "type", "bridge")
        _do("ip", "addr", "add", f"{_NET}.1/24", "dev", _BRIDGE)
        _do("ip", "link", "set", _BRIDGE, "up")
        _do("mount", "--bind", str(self._names), "/etc/hosts")

    def add(
        self,
        name: str,
        *,
        disk_mb: int = 64,
        files: Path | None = None,
        hidden: Sequence[Path] = (),
        shown: Sequence[Path] = (),
    ) -> Host:
        """Start a host.

        Args:
            name: at most ten letters; every host can resolve it.
            disk_mb: the size of its disk, which survives a power-off.
            files: a folder that is mounted as `FILES`.
            hidden: folders that appear empty on the host.
            shown: folders in the system's temporary folder, of which every host has its own, that
                are visible nevertheless.
        """
        host = Host(name, f"{_NET}.{next(self._numbers)}", self.folder / f"disk-{name}")
        # Written in place, because the mount refers to the file, not to its name.
        with self._names.open("a") as names:
            names.write(f"{host.address} {name}\n")
        host.disk.mkdir()
        _do("mount", "-t", "tmpfs", "-o", f"size={disk_mb}m", "none", str(host.disk))
        empty = self.folder / "empty"
        empty.mkdir(exist_ok=True)
        temporary = [each for each in shown if each.is_relative_to("/tmp")]
        host.prepare(
            [
                f"hostname {name}",
                *_bind(self._names, Path("/etc/hosts")),
                "mount -t tmpfs none /mnt",
                *_folder(STATE, host.disk),
                *_folder(SPARK, self._spark),
                *_folder(FILES, files or empty),
                f"mkdir {WORK}",
                *(
                    line
                    for number, each in enumerate(temporary)
                    for line in _folder(Path(f"/mnt/shown-{number}"), each)
                ),
                *(f"mount -t tmpfs -o ro none {shlex.quote(str(each))}" for each in hidden),
                "mount -t tmpfs none /tmp",
                *(
                    line
                    for number, each in enumerate(temporary)
                    for line in _folder(each, Path(f"/mnt/shown-{number}"))
                ),
            ]
        )
        self.hosts.append(host)
        host.boot()
        return host

    def close(self) -> None:
        """End all hosts and remove the network."""
        for host in self.hosts:
            host.power_off()
        _do("umount", "/etc/hosts")
        _do("ip", "link", "del", _BRIDGE)


class Host:
    """A host. It can be powered off and booted again; its disk is kept."""

    def __init__(self, name: str, address: str, disk: Path) -> None:
        self.name = name
        self.address = address
        self.disk = disk
        self._link = f"link-{name}"
        self._script: list[str] = []
        self._first: Program | None = None
        self._pid = 0
        self._is_linked = False

    @property
    def is_up(self) -> bool:
        """Whether it is running and connected."""
        return self._first is not None and self._is_linked

    def prepare(self, script: list[str]) -> None:
        """Set the commands that run at boot."""
        self._script = script

    def boot(self) -> None:
        """Boot; returns when the network is available."""
        lines = ["set -e", *self._script, "ip link set lo up", "echo ready"]
        # As the first process of the host, a shell reaps orphaned processes.
        wait = "trap : TERM; while :; do sleep 1000 & wait; done"
        spaces = ("--net", "--mount", "--pid", "--uts", "--ipc")
        self._first = Program(
            *("unshare", *spaces, "--fork", "--kill-child", "--mount-proc"),
            *("bash", "-c", "\n".join([*lines, wait])),
        )
        self._first.wait_for_line("ready")
        self._pid = _child_of(self._first.pid)
        _do(
            "ip", "link", "add", self._link, "type", "veth", "peer", "eth0", "netns", str(self._pid)
        )
        _do("ip", "link", "set", self._link, "master", _BRIDGE)
        self.restore_link()
        self.run("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def power_off(self) -> None:
        """Power off: the link first, so that no connection is closed by ending processes."""
        if self._first is None:
            return
        _do("ip", "link", "del", self._link)
        self._is_linked = False
        with self._first:
            os.kill(self._pid, signal.SIGKILL)
            self._first.wait_ended(_TIMEOUT_S)
        self._first = None

    def start(self, *command: str | Path, **environment: str) -> Program:
        """Start a program on this host, in its working folder."""
        return Program(*self._nsenter(), "env", "-C", WORK, *command, environment=environment)

    def run(self, *command: str) -> str:
        """Run a command on this host and return its output."""
        return _do(*self._nsenter(), *command)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function whose sockets, including those of its child processes, belong to this
        host.

        Everything else belongs to the calling process.
        """
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                _enter_network(self._pid)
                results.append(function())
            except BaseException as error:
                errors.append(error)

        # A thread can enter another network namespace, which ends with it.
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def processes(self, word: str = "") -> list[int]:
        """The outer ids of its processes whose command lines contain a word."""
        space = os.readlink(f"/proc/{self._pid}/ns/pid")
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                if os.readlink(process / "ns/pid") == space and word.encode() in command:
                    found.append(int(process.name))
        return found

    def kill(self, word: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to the processes whose command lines contain a word; return their
        number."""
        found = self.processes(word)
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        return len(found)

    def file(self, path: Path) -> Path:
        """The outer path of a file on this host."""
        return Path(f"/proc/{self._pid}/root", *path.parts[1:])

    def cut(self) -> None:
        """Disconnect from the network."""
        _do("ip", "link", "set", self._link, "down")
        self._is_linked = False

    def restore_link(self) -> None:
        """Reconnect to the network."""
        _do("ip", "link", "set", self._link, "up")
        self._is_linked = True

    @contextmanager
    def slow_link(self) -> Iterator[str]:
        """Degrade the link in both directions; yields a description, which depends on the
        kernel."""
        outside = ("tc", "qdisc", "add", "dev", self._link, "root")
        supported = (
            (kind, options)
            for kind, options in _DEGRADATIONS.items()
            if subprocess.run([*outside, *options], capture_output=True).returncode == 0
        )
        kind, options = next(supported)
        self.run("tc", "qdisc", "add", "dev", "eth0", "root", *options)
        yield kind
        _do("tc", "qdisc", "del", "dev", self._link, "root")
        self.run("tc", "qdisc", "del", "dev", "eth0", "root")

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Fill the disk until the end of the block."""
        filler = self.disk / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"\0" * 65_536) == 65_536:
                pass
        yield
        filler.unlink()

    def _nsenter(self) -> list[str]:
        assert self._first is not None, f"{self.name} is not running"
        spaces = ("--net", "--mount", "--pid", "--uts", "--ipc")
        return ["nsenter", "--target", str(self._pid), *spaces, "--"]


#: Kinds of slow links, from the worst one to the one that every kernel supports.
_DEGRADATIONS: Mapping[str, Sequence[str]] = {
    "200 ms later, 2 % lost": ("netem", "delay", "200ms", "50ms", "loss", "2%"),
    "512 kbit a second": ("tbf", "rate", "512kbit", "burst", "16kb", "latency", "400ms"),
}


def _bind(what: Path, where: Path) -> list[str]:
    return [f"mount --bind {shlex.quote(str(what))} {shlex.quote(str(where))}"]


def _folder(where: Path, what: Path) -> list[str]:
    return [f"mkdir -p {shlex.quote(str(where))}", *_bind(what, where)]


def _do(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    assert done.returncode == 0, f"{shlex.join(command)}: {done.stderr}"
    return done.stdout


def _child_of(process: int) -> int:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return int(children[0])


def _enter_network(process: int) -> None:
    with open(f"/proc/{process}/ns/net") as space:
        if CDLL(None, use_errno=True).setns(space.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(get_errno(), "cannot enter the network namespace")
