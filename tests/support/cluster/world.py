"""A world of hosts: namespaces that end with the process that created them.

Networks, mounts, host names and processes inside are separate from those outside, so nothing
outside can be damaged or left behind: the kernel kills all processes of a world when its first one
ends.

    python -m support.cluster.world COMMAND...

runs a command in a world, or prints the reason why there can be none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

#: Set inside to the outer network's identity, so that an inherited variable is not mistaken for a
#: world.
_MARK = "MILLSTREAM_WORLD"
_TRIAL_S = 30

#: The required capabilities, tried in temporary namespaces.
_TRIAL = """
set -e
ip link add trial-bridge type bridge
ip link add trial-a type veth peer name trial-b
mount -t tmpfs -o size=1m none /mnt
hostname trial
unshare --net --mount --pid --fork --mount-proc --uts true
"""

#: The first process reaps all others. With `exec`, the command itself would be process 1, which
#: ignores signals and does not reap orphans.
_FIRST = 'ip link set lo up; "$@"; exit $?'


def is_inside() -> bool:
    """Whether this process is in a world."""
    return os.environ.get(_MARK) is not None and os.environ[_MARK] != _network()


def unavailable_reason() -> str | None:
    """The reason why this machine cannot create a world; None if it can."""
    for tool in ("unshare", "nsenter", "ip", "tc", "bash", "mount"):
        if shutil.which(tool) is None:
            return f"there is no `{tool}`"
    if os.geteuid() != 0:
        return "only root can create namespaces"
    try:
        trial = subprocess.run(
            _unshared("bash", "-c", _TRIAL), capture_output=True, text=True, timeout=_TRIAL_S
        )
    except subprocess.TimeoutExpired:
        return f"making namespaces took longer than {_TRIAL_S} s"
    if trial.returncode == 0:
        return None
    message = (trial.stderr.strip().splitlines() or ["no error message"])[-1]
    return f"namespaces with bridges and mounts are not allowed here: {message}"


def run_inside(*command: str) -> int:
    """Run a command in its own world and return its exit code."""
    first = _unshared("bash", "-c", _FIRST, "world", *command)
    return subprocess.run(first, env={**os.environ, _MARK: _network()}).returncode


def _unshared(*command: str) -> list[str]:
    spaces = ("--net", "--mount", "--pid", "--uts", "--ipc")
    return ["unshare", *spaces, "--fork", "--kill-child", "--mount-proc", *command]


def _network() -> str:
    return os.readlink("/proc/self/ns/net")


def main() -> int:
    """Run the given command in a world and return its exit code, or 0 if there can be no world."""
    reason = unavailable_reason()
    if reason is not None:
        print(f"Skipped: {reason}\n0 passed, 0 failed")  # noqa: T201
        return 0
    return run_inside(*sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
