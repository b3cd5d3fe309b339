"""The programs in examples/ do what they promise."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from support.broker.topics import fill, read_all, unique
from support.machine.scripts import Program
from support.waiting import wait_for

from millstream.testing import EmbeddedKafka

EXAMPLES = Path(__file__).parents[2] / "examples"

#: What each says at the end of its demo, in which it checks its results itself.
PROMISES = {
    "ask_over_http": "every answer is right",
    "async_enrichment": "those of each customer are in order",
    "clickstream_sessions": "every visit is right",
    "console_tour": "that is the tour",
    "counts_in_a_notebook": "every answer is right",
    "dataframe_enrich": "every count is right",
    "dataframe_model": "cards is right",
    "deduplicate": "every event came out once",
    "enrich_orders": "as expected",
    "fraud_rules": "every fraud was found, and nothing else",
    "lake_backfill": "every click is counted once",
    "map_batches_numpy": "every score is right",
    "match_ads": "as expected",
    "orders_and_payments": "every order became what it should",
    "page_views": "as expected",
    "subscription": "every email was sent, or given up after three attempts",
    "word_count": "every count is right",
}
#: They start Spark, each for something that other tests start it for as well.
SLOW = {
    "ask_over_http",
    "async_enrichment",
    "console_tour",
    "counts_in_a_notebook",
    "dataframe_enrich",
    "dataframe_model",
    "lake_backfill",
    "map_batches_numpy",
    "subscription",
}
#: More is asked of a demo that takes longer.
OPTIONS = {"word_count": ["--lines", "3000"]}


def program(name: str) -> Path:
    """Where it is: in a folder of its name, with a README and tests, or by itself."""
    within = EXAMPLES / name.replace("_", "-") / f"{name}.py"
    return within if within.exists() else EXAMPLES / f"{name}.py"


def test_no_program_is_left_out() -> None:
    """Each file is a program, a module of one, a recipe of the cookbook, or a test."""
    programs = [
        path
        for path in EXAMPLES.glob("*/*.py")
        if "if __name__ ==" in path.read_text() and path.parent.name != "cookbook"
    ]
    folders = {path.parent.name for path in programs}
    within = {path.stem for path in programs}
    alone = {path.stem for path in EXAMPLES.glob("*.py") if "if __name__ ==" in path.read_text()}
    assert within | alone == PROMISES.keys()
    modules = {path.stem for path in EXAMPLES.glob("*.py")} - alone
    assert all(any(module.startswith(name) for name in alone) for module in modules)
    for folder in folders:
        name = folder.replace("-", "_")
        assert (EXAMPLES / folder / f"test_{name}.py").exists()
        assert (EXAMPLES / folder / "README.md").exists()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in PROMISES],
)
def test_a_demo_keeps_its_promise(name: str, tmp_path: Path) -> None:
    """Started as a user would, from anywhere, with all that it brings along."""
    options = ["--demo", *OPTIONS.get(name, [])]
    with Program(sys.executable, program(name), *options, home=tmp_path) as demo:
        assert demo.wait_ended(120) == 0, demo.errors
    assert PROMISES[name] in demo.lines[-1]
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.fixture
def without_pandas(tmp_path: Path) -> dict[str, str]:
    """Variables for programs to which pandas is not installed, nor to Spark's workers of theirs."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "pandas.py").write_text("raise ModuleNotFoundError('no pandas', name='pandas')\n")
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["counts_in_a_notebook", "dataframe_enrich", "lake_backfill"])
def test_only_functions_of_pandas_need_pandas(
    name: str, tmp_path: Path, without_pandas: dict[str, str]
) -> None:
    """Goal: DataFrame functions, the lake and stores as DataFrames do without, though Spark imports
    it wherever it is there."""
    with Program(sys.executable, program(name), "--demo", environment=without_pandas) as demo:
        assert demo.wait_ended(120) == 0, demo.errors
    assert PROMISES[name] in demo.lines[-1]


@pytest.mark.slow
def test_a_function_of_pandas_says_that_it_needs_pandas(without_pandas: dict[str, str]) -> None:
    """The example's own import; what shows that the other programs had none."""
    model = program("dataframe_model")
    with Program(sys.executable, model, "--demo", environment=without_pandas) as demo:
        assert demo.wait_ended(120) == 1
        assert "ModuleNotFoundError: no pandas" in demo.errors


def test_a_program_on_a_broker_of_the_user(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: without --demo a program works on topics that exist, until it is told to end."""
    events, once = unique("events"), unique("once")
    kafka.create_topic(events, partitions=2)
    kafka.create_topic(once, partitions=2)
    keys = [b"event-%d" % number for number in range(200)]
    fill(kafka.bootstrap_servers, events, [(key, b"") for key in [*keys, *keys[::3]]])
    options = {
        "--bootstrap-servers": kafka.bootstrap_servers,
        "--application-id": unique("deduplicate"),
        "--input-topic": events,
        "--output-topic": once,
    }
    arguments = [word for option in options.items() for word in option]
    # Its state goes to the folder for temporary files.
    place = {"TMPDIR": str(tmp_path)}
    path = program("deduplicate")
    with Program(sys.executable, path, *arguments, environment=place) as running:
        wait_for(
            lambda: len(read_all(kafka.bootstrap_servers, once)) >= len(keys),
            60,
            lambda: f"everything is written; it said: {running.errors[-2_000:]}",
        )
        running.signal(signal.SIGINT)
        assert running.wait_ended(60) == 0, running.errors
    assert sorted(key or b"" for key, _ in read_all(kafka.bootstrap_servers, once)) == sorted(keys)
