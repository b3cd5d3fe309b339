"""The programs in examples/ work."""

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

pytestmark = pytest.mark.extended

EXAMPLES = Path(__file__).parents[2] / "examples"

#: The last line of each demo, which checks its own results.
EXPECTED_LINES = {
    "ask_over_http": "every result is correct",
    "async_enrichment": "the visits of each customer are in order",
    "clickstream_sessions": "every visit is correct",
    "console_tour": "the tour is complete",
    "counts_in_a_notebook": "every result is correct",
    "dataframe_enrich": "every count is correct",
    "dataframe_model": "cards is correct",
    "deduplicate": "every event was forwarded once",
    "enrich_orders": "as expected",
    "fraud_rules": "exactly the fraud was detected",
    "lake_backfill": "every click is counted once",
    "map_batches_numpy": "every score is correct",
    "match_ads": "as expected",
    "orders_and_payments": "every order has the expected status",
    "page_views": "as expected",
    "subscription": "every email was sent, or failed after three attempts",
    "word_count": "every count is correct",
}
#: Demos that start Spark for features that other tests cover as well.
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
#: Demos that take longer process fewer records.
OPTIONS = {"word_count": ["--lines", "3000"]}


def program(name: str) -> Path:
    """The path of a program: in a folder of its name, with a README and tests, or a single file."""
    within = EXAMPLES / name.replace("_", "-") / f"{name}.py"
    return within if within.exists() else EXAMPLES / f"{name}.py"


def test_every_file_is_covered() -> None:
    """Each file is a program, a module of one, a recipe of the cookbook, or a test."""
    programs = [
        path
        for path in EXAMPLES.glob("*/*.py")
        if "if __name__ ==" in path.read_text() and path.parent.name != "cookbook"
    ]
    folders = {path.parent.name for path in programs}
    within = {path.stem for path in programs}
    alone = {path.stem for path in EXAMPLES.glob("*.py") if "if __name__ ==" in path.read_text()}
    assert within | alone == EXPECTED_LINES.keys()
    modules = {path.stem for path in EXAMPLES.glob("*.py")} - alone
    assert all(any(module.startswith(name) for name in alone) for module in modules)
    for folder in folders:
        name = folder.replace("-", "_")
        assert (EXAMPLES / folder / f"test_{name}.py").exists()
        assert (EXAMPLES / folder / "README.md").exists()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in EXPECTED_LINES],
)
def test_a_demo_checks_its_results(name: str, tmp_path: Path) -> None:
    """Started as a user would, from any folder, with its own modules."""
    options = ["--demo", *OPTIONS.get(name, [])]
    with Program(sys.executable, program(name), *options, home=tmp_path) as demo:
        assert demo.wait_ended(120) == 0, demo.errors
    assert EXPECTED_LINES[name] in demo.lines[-1]
    assert list(tmp_path.iterdir()) == [], "processes or files are left behind"


@pytest.fixture
def without_pandas(tmp_path: Path) -> dict[str, str]:
    """Environment variables that hide pandas from programs and from Spark's workers."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "pandas.py").write_text("raise ModuleNotFoundError('no pandas', name='pandas')\n")
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["counts_in_a_notebook", "dataframe_enrich", "lake_backfill"])
def test_only_pandas_functions_need_pandas(
    name: str, tmp_path: Path, without_pandas: dict[str, str]
) -> None:
    """Goal: DataFrame functions, the lake and stores as DataFrames work without pandas, although
    Spark imports it if it is installed."""
    with Program(sys.executable, program(name), "--demo", environment=without_pandas) as demo:
        assert demo.wait_ended(120) == 0, demo.errors
    assert EXPECTED_LINES[name] in demo.lines[-1]


@pytest.mark.slow
def test_a_pandas_function_reports_missing_pandas(without_pandas: dict[str, str]) -> None:
    """The example's own import fails; this shows that the other programs ran without pandas."""
    model = program("dataframe_model")
    with Program(sys.executable, model, "--demo", environment=without_pandas) as demo:
        assert demo.wait_ended(120) == 1
        assert "ModuleNotFoundError: no pandas" in demo.errors


def test_a_program_on_an_existing_broker(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: without --demo a program works on existing topics until it is stopped."""
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
    # Its state goes to the temporary directory.
    place = {"TMPDIR": str(tmp_path)}
    path = program("deduplicate")
    with Program(sys.executable, path, *arguments, environment=place) as running:
        wait_for(
            lambda: len(read_all(kafka.bootstrap_servers, once)) >= len(keys),
            60,
            lambda: f"everything is written; stderr: {running.errors[-2_000:]}",
        )
        running.signal(signal.SIGINT)
        assert running.wait_ended(60) == 0, running.errors
    assert sorted(key or b"" for key, _ in read_all(kafka.bootstrap_servers, once)) == sorted(keys)
