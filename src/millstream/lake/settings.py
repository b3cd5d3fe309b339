"""What a session of the user's own needs for a connector or a table format."""

from __future__ import annotations

from millstream.spark.sessions.connectors import session_settings


def spark_settings(*names: str) -> dict[str, str]:
    """The settings to start a Spark session with that shall have connectors or table formats.

    Their jars are fetched once, as the embedded broker's are. A session that Millstream starts
    itself has what its application needs.

    Args:
        names: `"delta"`, `"iceberg"`, `"kafka"`.

    Raises:
        SparkError: there is no such connector, none for this Spark, or its jars cannot be had.

    Example:
        >>> builder = SparkSession.builder.master("local[4]")  # doctest: +SKIP
        >>> for name, value in spark_settings("delta").items():  # doctest: +SKIP
        ...     builder = builder.config(name, value)
    """
    return session_settings(names)
