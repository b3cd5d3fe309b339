"""Where `state.dir` is on this host: hosts may have their disks at different places."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from millstream.errors import ConfigError

_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")


def state_dir_here(
    state_dir: str | os.PathLike[str], environment: Mapping[str, str] | None = None
) -> Path:
    """The directory that the setting means on this host.

    Args:
        state_dir: the `state.dir` setting; `${NAME}` in it stands for a variable of the
            environment, which each host has for itself.
        environment: the variables; by default those of this process.

    Raises:
        ConfigError: a variable is not set here, or empty.

    Example:
        >>> str(state_dir_here("${SCRATCH}/state", {"SCRATCH": "/mnt/disk2"}))
        '/mnt/disk2/state'
    """
    known = os.environ if environment is None else environment

    def value(found: re.Match[str]) -> str:
        given = known.get(found[1])
        if not given:
            raise ConfigError(
                f"state_dir is {os.fspath(state_dir)!r}, but the environment variable {found[1]} "
                f"is {'not set' if given is None else 'empty'} on {os.uname().nodename}. Set it "
                "for the driver and, on a cluster, for the executors: in the environment of "
                "Spark's workers, or with spark.executorEnv."
            )
        return given

    return Path(_VARIABLE.sub(value, os.fspath(state_dir)))
