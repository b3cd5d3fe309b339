"""Without pyarrow, the error says what needs it and how to install it."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from millstream import StreamsBuilder, StreamsConfig
from millstream.application.dataframes import DataFrameStages, LakeHistories
from millstream.serdes import STRING

CONFIG = StreamsConfig(application_id="app", bootstrap_servers="nowhere:9092")
ADVICE = r"needs a package that is not installed .*pip install 'millstream\[arrow\]'"
#: Never reached: pyarrow is checked first.
UNUSED: Any = None


@pytest.fixture(autouse=True)
def without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for module in [name for name in sys.modules if name.startswith("millstream.lake")]:
        monkeypatch.delitem(sys.modules, module)


def test_stores_as_dataframes() -> None:
    with pytest.raises(ImportError, match=f"stores and lake tables as DataFrames {ADVICE}"):
        __import__("millstream.lake")


def test_functions_of_dataframes() -> None:
    """At startup, instead of in every Spark task while the application is RUNNING."""
    builder = StreamsBuilder()
    frames = builder.stream("in", key=STRING, value=STRING).transform_dataframe(
        lambda frame: frame, key=STRING, value=STRING, name="same"
    )
    frames.to("out", key=STRING, value=STRING)
    stages = DataFrameStages(builder.build(), CONFIG, UNUSED)
    with pytest.raises(ImportError, match=f"Running DataFrame functions {ADVICE}"):
        stages.start(UNUSED)


def test_histories_from_the_lake() -> None:
    builder = StreamsBuilder()
    table = builder.stream_from_lake("/lake", format="delta", key=STRING, value=STRING, then="in")
    table.to("out", key=STRING, value=STRING)
    with pytest.raises(ImportError, match=f"Reading lake tables {ADVICE}"):
        LakeHistories(builder.build(), CONFIG).write(UNUSED, lambda: False)
