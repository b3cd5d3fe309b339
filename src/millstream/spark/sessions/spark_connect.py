"""Spark Connect, whose sessions cannot host stream threads: how it is recognized, and what to do.

Its client has no Spark of its own but speaks to a server, which gives it neither jobs that last nor
a way for a worker to reach the program.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from millstream.errors import SparkError

#: What makes PySpark give out sessions of Spark Connect, whatever a program asks for.
_VARIABLES: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")

_WAY_OUT: Final = (
    "Stream threads need a classic session: let the program create it with "
    'SparkSession.builder.master("spark://..."), or run it with spark-submit, without '
    "spark.remote, SPARK_REMOTE and spark.api.mode=connect. Where the rest of a program needs "
    "Spark Connect, run the application as a program of its own beside it, and ask that for its "
    "state over HTTP (streams.serve())."
)


def is_connect(session: object) -> bool:
    """Whether a session is one of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def refuse_connect(session: object) -> None:
    """Refuse a session of Spark Connect.

    Raises:
        SparkError: it is one, with the way out.
    """
    if is_connect(session):
        raise SparkError(
            "The session is one of Spark Connect, whose server runs no tasks that last and lets "
            f"no worker reach this program. {_WAY_OUT}"
        )


def refuse_connect_mode(environment: Mapping[str, str] = os.environ) -> None:
    """Refuse to look for a session, or to start one, where PySpark gives out only those of Spark
    Connect. A classic one that somebody has nevertheless can be given.

    Raises:
        SparkError: it is one, with the variable that makes it so and the way out.
    """
    for name in _VARIABLES:
        if environment.get(name):
            raise SparkError(
                f"{name} is set, so this process gets sessions of Spark Connect only, whose server "
                f"runs no tasks that last. {_WAY_OUT}"
            )
