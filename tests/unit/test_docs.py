"""The documentation says what is: its examples run, its links lead somewhere, nothing is left out.

In the pages, blocks marked `python` are executed and blocks marked `pycon` are compared with what
they show, all blocks of a page in one namespace, from top to bottom. Functions of a block that are
called `test_...` and take no arguments are called. `<!-- not run -->` before a block keeps it from
being executed, for example because it needs a broker; it must be valid Python all the same.
Applications are made in the blocks, not started.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.doc_examples import (
    PUBLIC,
    compare,
    examples_of,
    has_example,
    public_code,
    public_data,
)

import millstream
from millstream import errors, parallel, testing

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
LINKING = sorted({*PAGES, *ROOT.glob("*.md"), *(ROOT / "benchmarks").glob("*.md")})

BLOCK = re.compile(
    r"^(<!-- not run -->\n+)?^```(python|pycon)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


class Block(NamedTuple):
    """A block of Python in a page, and the line on which its code begins."""

    code: str
    kind: str
    line: int
    runs: bool


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start(3)) + 1
        yield Block(found[3], found[2], line, runs=found[1] is None)


def execute(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    """Runs a block of a page in the page's namespace."""
    if block.kind == "pycon":
        test = doctest.DocTestParser().get_doctest(
            block.code, namespace, name(page), str(page), block.line - 1
        )
        compare(test)
        namespace.update(test.globs)
        return
    # The lines before it, so that tracebacks name the line of the page.
    code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
    exec(code, namespace)
    for statement in ast.parse(block.code).body:
        if isinstance(statement, ast.FunctionDef) and statement.name.startswith("test_"):
            function = namespace[statement.name]
            if not inspect.signature(function).parameters:
                function()


@pytest.fixture
def unstarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `run` and `start` return at once: everything before them happens for real."""
    monkeypatch.setattr(millstream.KafkaStreams, "run", lambda self: None)
    monkeypatch.setattr(millstream.KafkaStreams, "start", lambda self: None)


@pytest.mark.usefixtures("unstarted")
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_examples_of_the_pages_run(page: Path) -> None:
    """An example that does not work, or shows what is not so, is worse than none."""
    namespace: dict[str, Any] = {"__name__": "docs"}
    for block in blocks(page):
        if block.runs:
            execute(block, page, namespace)
        elif block.kind == "python":
            compile(block.code, f"{page}:{block.line}", "exec")


def test_a_wrong_example_is_noticed() -> None:
    """Each kind of block fails when it is wrong: an exception, a wrong result, a failing test."""
    wrong = (
        Block("1 / 0\n", "python", 1, True),
        Block(">>> 1 + 1\n3\n", "pycon", 1, True),
        Block("def test_sum():\n    assert 1 + 1 == 3\n", "python", 1, True),
    )
    for block in wrong:
        with pytest.raises((ArithmeticError, AssertionError)):
            execute(block, ROOT / "README.md", {})


# Links and completeness.


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    slugs: set[str] = set()
    for heading in HEADING.findall(text):
        plain = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        slugs.add(plain.replace(" ", "-"))
    return slugs


def broken_links(page: Path) -> list[str]:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        found = target.exists() and (not anchor or anchor in anchors(target))
        if not found or not target.is_relative_to(ROOT):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", LINKING, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    """A renamed page or heading must not leave dead links behind."""
    assert broken_links(page) == []


def test_dead_links_are_noticed(tmp_path: Path) -> None:
    """A missing file and a missing heading both count; code and the web do not."""
    page = ROOT / "docs" / "dsl.md"
    assert "nowhere" not in anchors(page)
    copy = tmp_path / "page.md"
    copy.write_text("# A `b` c\n[x](gone.md) [y](#nowhere) [z](https://a.b)\n```\n[x](q.md)\n```\n")
    assert anchors(copy) == {"a-b-c"}
    assert broken_links(copy) == ["gone.md", "#nowhere"]


def test_the_reference_of_settings_is_what_the_code_says() -> None:
    """A setting or property that is added, changed or wired up must show in its page."""
    script = DOCS / "generate_configuration.py"
    spec = importlib.util.spec_from_file_location("generate_configuration", script)
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    texts = [page.read_text(encoding="utf-8") for page in generator.PAGES]
    for text in texts:
        assert text == generator.page(text), "run: python docs/generate_configuration.py"
    for declared in (millstream.StreamsConfig.settings(), parallel.Properties.settings()):
        for setting in declared:
            assert f"| `{setting.name}` |" in "".join(texts)


def test_every_error_is_explained() -> None:
    """A user who meets an error class finds it in docs/errors.md."""
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    classes = [each for each in vars(errors).values() if inspect.isclass(each)]
    names = {each.__name__ for each in classes if issubclass(each, errors.StreamsError)}
    assert {each for each in names if f"`{each}`" not in text} == set()


#: Examples that start a broker: an integration test runs them.
NEEDS_BROKER = frozenset({"millstream.embedded.broker"})

#: What is public, but has no example of its own, and why.
WITHOUT_EXAMPLE: dict[str, str] = {
    "Materialized.versioned_supplier": "for the engine, not for users",
    **{
        f"EmbeddedKafka.{each}": "its class shows them all, so that one broker does"
        for each in ("create_topic", "kill", "start", "stop")
    },
    **{
        f"Completion.{each}": "for the engine, not for users"
        for each in ("land", "run_time", "time_out")
    },
    **{
        f"ProcessingContext.{each}": "for the engine, not for users"
        for each in ("call", "describe", "returned")
    },
    **{
        f"{owner}.{each}": "its class shows it"
        for owner, names in {
            "Completion": ("complete", "fail", "retry"),
            "OpenTelemetryTracing": ("trace_for",),
            "ProcessingContext": ("defer_completion", "push", "retry"),
            "TaskProcessor": ("close", "open", "process"),
            "TaskTrace": ("completed", "processing", "retry_headers"),
            "Tracing": ("trace_for",),
        }.items()
        for each in names
    },
    **{
        f"ProcessorSubscription.{each}": "the method of KafkaStreams has one"
        for each in (
            "close",
            "run",
            "set_state_listener",
            "set_uncaught_exception_handler",
            "start",
            "thread_metrics",
            "wait_for_state",
        )
    },
    **dict.fromkeys(
        (
            "backfill",
            "position_of",
            "read_changes",
            "read_store",
            "read_table",
            "register",
            "spark_settings",
        ),
        "needs Spark, and a broker or jars: what it shows is run by tests of the lake",
    ),
}


@pytest.mark.parametrize(
    ("kind", "page"),
    [
        (millstream.StreamsBuilder, "dsl.md"),
        (millstream.KStream, "dsl.md"),
        (millstream.KGroupedStream, "dsl.md"),
        (millstream.KTable, "dsl.md"),
        (millstream.KGroupedTable, "dsl.md"),
        (millstream.GlobalKTable, "dsl.md"),
        (millstream.Topology, "dsl.md"),
        (millstream.Stores, "stores.md"),
        (millstream.BranchedKStream, "dsl.md"),
        (millstream.TimeWindowedKStream, "windows.md"),
        (millstream.SessionWindowedKStream, "windows.md"),
        (millstream.CogroupedKStream, "windows.md"),
        (millstream.KeyValueStore, "stores.md"),
        (millstream.KeyValueIterator, "stores.md"),
        (millstream.WindowStore, "stores.md"),
        (millstream.SessionStore, "stores.md"),
        (millstream.VersionedKeyValueStore, "stores.md"),
        (millstream.ProcessorContext, "processor-api.md"),
        (millstream.FixedKeyProcessorContext, "processor-api.md"),
        (millstream.KafkaStreams, "running.md"),
        (testing.TopologyTestDriver, "testing.md"),
        (testing.TestInputTopic, "testing.md"),
        (testing.TestOutputTopic, "testing.md"),
        (testing.EmbeddedKafka, "testing.md"),
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
    text = (DOCS / "dsl.md").read_text(encoding="utf-8")
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
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    names = {each for module in PUBLIC for each in module.__all__}
    assert {each for each in names if not re.search(rf"\b{each}\b", text)} == set()


# Docstrings and examples.


def modules() -> list[str]:
    return sorted(found.name for found in pkgutil.walk_packages(millstream.__path__, "millstream."))


@pytest.mark.usefixtures("unstarted")
@pytest.mark.parametrize("module", sorted(set(modules()) - NEEDS_BROKER))
def test_examples_of_docstrings_run(module: str) -> None:
    """The examples that an editor shows beside a function work."""
    for test in examples_of(importlib.import_module(module)):
        compare(test)


def test_everything_public_has_an_example() -> None:
    """Whoever meets a public class, function or method sees how it is used."""
    code = dict(public_code())
    assert len(code) > 250  # it looks at something
    assert {each for each in code if not has_example(code[each])} == WITHOUT_EXAMPLE.keys()


def test_constants_are_shown_in_examples() -> None:
    """What is public and no code, such as a serde, is used in some example."""
    sources = [
        example.source
        for module in modules()
        for test in examples_of(importlib.import_module(module))
        for example in test.examples
    ]
    text = "".join(sources)
    assert [each for each in public_data() if not re.search(rf"\b{each}\b", text)] == []


def test_a_missing_example_is_noticed() -> None:
    """Words are no example, and neither is what is never run."""

    def told() -> None:
        """Does it."""

    def skipped() -> None:
        """Does it.

        >>> skipped()  # doctest: +SKIP
        """

    def shown() -> None:
        """Does it.

        >>> 1 + 1
        2
        """

    assert [has_example(each) for each in (told, skipped, shown)] == [False, False, True]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=name)
def test_example_programs_compile(path: Path) -> None:
    """The programs in examples/ are valid Python and import only what there is."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    compile(tree, str(path), "exec")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("millstream"):
            module = importlib.import_module(str(node.module))
            assert [each.name for each in node.names if not hasattr(module, each.name)] == []
