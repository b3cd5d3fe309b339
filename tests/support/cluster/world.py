"""A world of hosts of its own: namespaces that are gone when the process that made them is.

Inside, networks, mounts, host names and processes are others than outside, so nothing outside can
be broken or left behind: the kernel kills every process of a world, however its first one ends.

    python -m support.cluster.world COMMAND...

runs a command in a world, or says why there can be none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

#: Set inside to the network's identity, so that nobody takes what it has inherited for a world.
_MARK = "MILLSTREAM_WORLD"
_TRIAL_S = 30

#: What a world must be able to do, tried in one that is thrown away.
_TRIAL = """
set -e
ip link add trial-bridge type bridge
ip link add trial-a type veth peer name trial-b
mount -t tmpfs -o size=1m none /mnt
hostname trial
unshare --net --mount --pid --fork --mount-proc --uts true
"""

#: The first process waits for all others, and gives their ends to nobody: `exec` would make the
#: command the one whose signals are ignored and whose orphans are never waited for.
_FIRST = 'ip link set lo up; "$@"; exit $?'


def is_inside() -> bool:
    """Whether this process is in a world."""
    return os.environ.get(_MARK) is not None and os.environ[_MARK] != _network()


def hindrance() -> str | None:
    """Why there can be no world on this machine; None where there can."""
    for tool in ("unshare", "nsenter", "ip", "tc", "bash", "mount"):
        if shutil.which(tool) is None:
            return f"there is no `{tool}`"
    if os.geteuid() != 0:
        return "namespaces are made by root, which this is not"
    try:
        trial = subprocess.run(
            _entered("bash", "-c", _TRIAL), capture_output=True, text=True, timeout=_TRIAL_S
        )
    except subprocess.TimeoutExpired:
        return f"making namespaces took longer than {_TRIAL_S} s"
    if trial.returncode == 0:
        return None
    said = (trial.stderr.strip().splitlines() or ["it does not say why"])[-1]
    return f"namespaces with bridges and mounts are not allowed here: {said}"


def run_inside(*command: str) -> int:
    """Run a command in a world of its own; its exit code."""
    first = _entered("bash", "-c", _FIRST, "world", *command)
    return subprocess.run(first, env={**os.environ, _MARK: _network()}).returncode


def _entered(*command: str) -> list[str]:
    spaces = ("--net", "--mount", "--pid", "--uts", "--ipc")
    return ["unshare", *spaces, "--fork", "--kill-child", "--mount-proc", *command]


def _network() -> str:
    return os.readlink("/proc/self/ns/net")


def main() -> int:
    """Run the command that is given in a world; its exit code, or 0 if there can be no world."""
    reason = hindrance()
    if reason is not None:
        print(f"Skipped: {reason}\n0 passed, 0 failed")  # noqa: T201
        return 0
    return run_inside(*sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
