"""Nothing is left out: settings, errors, methods and names that are public are in the pages."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import generate_configuration
import generate_errors
import generate_limits
import pytest
from support.doc_examples import PUBLIC

import millstream
from millstream import errors, parallel, testing

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_of_settings_is_what_the_code_says() -> None:
    """A setting or property that is added, changed or wired up must show in its page."""
    texts = [page.read_text(encoding="utf-8") for page in generate_configuration.PAGES]
    for text in texts:
        current = generate_configuration.page(text)
        assert text == current, "run: python docs/generators/generate_configuration.py"
    for declared in (millstream.StreamsConfig.settings(), parallel.Properties.settings()):
        for setting in declared:
            assert f"| `{setting.name}` |" in "".join(texts)


def test_the_table_of_errors_is_what_the_code_says() -> None:
    """An error that is new, or means something else, must show in the page."""
    text = generate_errors.PAGE.read_text(encoding="utf-8")
    assert text == generate_errors.page(text), "run: python docs/generators/generate_errors.py"


def test_limits_are_what_the_code_says() -> None:
    """A bound that was changed, or is gone, must show in the page."""
    text = generate_limits.PAGE.read_text(encoding="utf-8")
    assert text == generate_limits.page(), "run: python docs/generators/generate_limits.py"


def test_every_error_is_explained() -> None:
    """A user who meets an error class finds it in docs/build/errors.md."""
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
def test_every_method_is_in_the_page_about_it(kind: type, page: str) -> None:
    """A method without a word in the page about its class does not exist for its readers."""
    text = (DOCS / page).read_text(encoding="utf-8")
    own = (vars(base) for base in kind.__mro__ if base.__module__.startswith("millstream"))
    methods = {each for names in own for each in names if not each.startswith("_")}
    assert {each for each in methods if not re.search(rf"[`.]{each}\b", text)} == set()


def test_the_overview_of_the_dsl_is_complete() -> None:
    """Its table lists every operation, so what is not in it does not exist in the DSL."""
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
    """What can be imported from the public modules is mentioned in some page."""
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    names = {each for module in PUBLIC for each in module.__all__}
    assert {each for each in names if not re.search(rf"\b{each}\b", text)} == set()
