"""Spark Connect is rejected with a remedy before anything is started."""

from __future__ import annotations

import pytest

from millstream import SparkError
from millstream.spark.sessions.session import check_session, reject_connect_mode, resolve_session


def connect_session() -> object:
    """An object of the class of Spark Connect's sessions, which need a server."""
    return type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()


def test_a_session_of_spark_connect_is_rejected_with_a_remedy() -> None:
    """Such a session has no Spark in this process: reading its settings would end in an
    unhelpful PySpark error."""
    with pytest.raises(SparkError, match=r"Spark Connect.*SparkSession\.builder\.master") as found:
        check_session(connect_session())  # type: ignore[arg-type]
    assert "spark-submit" in str(found.value)


@pytest.mark.parametrize("name", ["SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"])
def test_no_session_is_started_if_pyspark_would_use_spark_connect(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Goal: the error names the variable, because nothing in the program mentions Spark Connect."""
    monkeypatch.setenv(name, "sc://localhost:15002")
    with pytest.raises(SparkError, match=f"^{name} is set"):
        resolve_session(None, 1)


def test_an_empty_variable_counts_as_unset() -> None:
    """Shells cannot always unset inherited variables."""
    reject_connect_mode({"SPARK_REMOTE": ""})
