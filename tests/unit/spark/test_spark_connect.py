"""Spark Connect: refused with what to do, before anything is started."""

from __future__ import annotations

import pytest

from millstream import SparkError
from millstream.spark.sessions.session import check_session, resolve_session
from millstream.spark.sessions.spark_connect import refuse_connect_mode


def connect_session() -> object:
    """What is of the class of Spark Connect's sessions, which only come with a server."""
    return type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()


def test_a_session_of_spark_connect_is_refused_with_the_way_out() -> None:
    """Such a session has no Spark in this process: looking for its settings would end in an error
    of PySpark's that says nothing."""
    with pytest.raises(SparkError, match=r"Spark Connect.*SparkSession\.builder\.master") as found:
        check_session(connect_session())  # type: ignore[arg-type]
    assert "spark-submit" in str(found.value)


@pytest.mark.parametrize("name", ["SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"])
def test_where_pyspark_gives_out_no_other_sessions_none_is_started(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Goal: the error names the variable, since nothing in the program mentions Spark Connect."""
    monkeypatch.setenv(name, "sc://localhost:15002")
    with pytest.raises(SparkError, match=f"^{name} is set"):
        resolve_session(None, 1)


def test_an_empty_variable_is_none() -> None:
    """Shells cannot always unset what they have inherited."""
    refuse_connect_mode({"SPARK_REMOTE": ""})
