"""The pages cover all public settings, errors, methods and names."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import generate_architecture
import generate_configuration
import generate_errors
import generate_limits
import pytest
from support.doc_examples import PUBLIC

import millstream
from millstream import errors, parallel, testing

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_of_settings_is_current() -> None:
    """The page shows every added, changed or newly supported setting."""
    texts = [page.read_text(encoding="utf-8") for page in generate_configuration.PAGES]
    for text in texts:
        current = generate_configuration.page(text)
        assert text == current, "run: python docs/generators/generate_configuration.py"
    for declared in (millstream.StreamsConfig.settings(), parallel.Properties.settings()):
        for setting in declared:
            assert f"| `{setting.name}` |" in "".join(texts)


def test_the_table_of_errors_is_current() -> None:
    """The page shows every new or changed error."""
    text = generate_errors.PAGE.read_text(encoding="utf-8")
    assert text == generate_errors.page(text), "run: python docs/generators/generate_errors.py"


def test_limits_are_current() -> None:
    """The page shows every changed or removed limit."""
    text = generate_limits.PAGE.read_text(encoding="utf-8")
    assert text == generate_limits.page(), "run: python docs/generators/generate_limits.py"


def test_the_architecture_drawing_is_current() -> None:
    text = generate_architecture.DRAWING.read_text(encoding="utf-8")
    assert text == generate_architecture.drawing(), (
        "run: python docs/generators/generate_architecture.py"
    )


def test_every_error_is_documented() -> None:
    """Every error class is in docs/build/errors.md."""
    text = (DOCS / "build" / "errors.md").read_text(encoding="utf-8")
    classes = [each for each in vars(errors).values() if inspect.isclass(each)]
    names = {each.__name__ for each in classes if issubclass(each, errors.StreamsError)}
    assert {each for each in names if f"`{each}`" not in text} == set()


@pytest.mark.parametrize(
    ("kind", "page"),
    [
        (millstream.StreamsBuilder, "build/dsl.md"),
        (millstream.KStream, "build/dsl.md"),
        (millstream.KGroupedStream, "build/dsl.md"),
        (millstream.KTable, "build/dsl.md"),
        (millstream.KGroupedTable, "build/dsl.md"),
        (millstream.GlobalKTable, "build/dsl.md"),
        (millstream.Topology, "build/dsl.md"),
        (millstream.Stores, "build/stores.md"),
        (millstream.BranchedKStream, "build/dsl.md"),
        (millstream.TimeWindowedKStream, "build/windows.md"),
        (millstream.SessionWindowedKStream, "build/windows.md"),
        (millstream.CogroupedKStream, "build/windows.md"),
        (millstream.KeyValueStore, "build/stores.md"),
        (millstream.KeyValueIterator, "build/stores.md"),
        (millstream.WindowStore, "build/stores.md"),
        (millstream.SessionStore, "build/stores.md"),
        (millstream.VersionedKeyValueStore, "build/stores.md"),
        (millstream.ProcessorContext, "build/processor-api.md"),
        (millstream.FixedKeyProcessorContext, "build/processor-api.md"),
        (millstream.KafkaStreams, "operations/running.md"),
        (testing.TopologyTestDriver, "build/testing.md"),
        (testing.TestInputTopic, "build/testing.md"),
        (testing.TestOutputTopic, "build/testing.md"),
        (testing.EmbeddedKafka, "build/testing.md"),
    ],
)
def test_every_method_is_in_the_page_of_its_class(kind: type, page: str) -> None:
    """The page about a class mentions all of its methods."""
    text = (DOCS / page).read_text(encoding="utf-8")
    own = (vars(base) for base in kind.__mro__ if base.__module__.startswith("millstream"))
    methods = {each for names in own for each in names if not each.startswith("_")}
    assert {each for each in methods if not re.search(rf"[`.]{each}\b", text)} == set()


def test_the_overview_of_the_dsl_is_complete() -> None:
    """The table lists every operation."""
    text = (DOCS / "build" / "dsl.md").read_text(encoding="utf-8")
    overview = text[text.index("\n## Every operation") : text.index("\n## Reading and writing")]
    kinds = (
        millstream.StreamsBuilder,
        millstream.KStream,
        millstream.BranchedKStream,
        millstream.KTable,
        millstream.KGroupedStream,
        millstream.KGroupedTable,
        millstream.TimeWindowedKStream,
        millstream.SessionWindowedKStream,
        millstream.CogroupedKStream,
    )
    operations = {each for kind in kinds for each in dir(kind) if not each.startswith("_")}
    assert {each for each in operations if not re.search(rf"\b{each}\b", overview)} == set()


def test_every_public_name_is_documented() -> None:
    """Every name in the public modules is in some page."""
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    names = {each for module in PUBLIC for each in module.__all__}
    assert {each for each in names if not re.search(rf"\b{each}\b", text)} == set()
