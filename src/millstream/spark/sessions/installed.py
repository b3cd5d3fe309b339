"""Whether Spark's Python package is installed: it is an extra, since it is most of what there is to
install, and writing and testing topologies needs none of it."""

from __future__ import annotations

from importlib import util

from millstream.errors import SparkError


def has_pyspark() -> bool:
    """Whether there is a `pyspark` to import."""
    return util.find_spec("pyspark") is not None


def require_pyspark() -> None:
    """Refuse to look for a session where there cannot be one.

    Raises:
        SparkError: Spark is not installed, with the command that installs it.
    """
    if not has_pyspark():
        raise SparkError(
            "Spark runs the stream threads, and is not installed here: "
            "pip install 'millstream[spark]'"
        )
