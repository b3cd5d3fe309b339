"""Public names have examples in their docstrings, and the examples work."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest
from support.doc_examples import compare, examples_of, has_example, public_code, public_data

import millstream

#: Examples that start a broker; an integration test runs them.
NEEDS_BROKER = frozenset({"millstream.embedded.embedded_kafka"})

#: Public names without an example of their own, and the reasons.
WITHOUT_EXAMPLE: dict[str, str] = {
    "Materialized.versioned_supplier": "for the engine, not for users",
    **{
        f"EmbeddedKafka.{each}": "its class shows all of them with one broker"
        for each in ("create_topic", "kill", "start", "stop")
    },
    **dict.fromkeys(
        (
            "EmbeddedBroker",
            *(f"EmbeddedBroker.{each}" for each in ("kill", "pause", "resume", "start", "stop")),
            "EmbeddedKafka.wait_in_sync",
        ),
        "the example of EmbeddedKafka.brokers shows all of them",
    ),
    **{
        f"EmbeddedBroker.{each}": "for EmbeddedKafka, not for users"
        for each in ("await_ready", "end", "launch", "remove")
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
            "JsonFormatter": ("format",),
            "OpenTelemetryTracing": ("trace_for",),
            "ProcessingContext": ("defer_completion", "push", "retry"),
            "TaskProcessor": ("close", "open", "process"),
            "TaskTrace": ("completed", "processing", "retry_headers"),
            "Tracing": ("trace_for",),
        }.items()
        for each in names
    },
    **{
        f"ProcessorSubscription.{each}": "the method of KafkaStreams has an example"
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
        "needs Spark, and a broker or jars; tests of the lake run its example",
    ),
}


def modules() -> list[str]:
    return sorted(found.name for found in pkgutil.walk_packages(millstream.__path__, "millstream."))


@pytest.mark.usefixtures("unstarted")
@pytest.mark.parametrize("module", sorted(set(modules()) - NEEDS_BROKER))
def test_examples_of_docstrings_run(module: str) -> None:
    """All examples in the docstrings of a module work."""
    for test in examples_of(importlib.import_module(module)):
        compare(test)


def test_everything_public_has_an_example() -> None:
    """Every public class, function and method shows its use."""
    code = dict(public_code())
    assert len(code) > 250  # Public code must be found.
    assert {each for each in code if not has_example(code[each])} == WITHOUT_EXAMPLE.keys()


def test_constants_are_shown_in_examples() -> None:
    """Public constants, such as serdes, are used in some example."""
    sources = [
        example.source
        for module in modules()
        for test in examples_of(importlib.import_module(module))
        for example in test.examples
    ]
    text = "".join(sources)
    assert [each for each in public_data() if not re.search(rf"\b{each}\b", text)] == []


def test_missing_examples_are_detected() -> None:
    """Text is not an example, nor is a skipped example."""

    def described() -> None:
        """Do it."""

    def skipped() -> None:
        """Do it.

        >>> skipped()  # doctest: +SKIP
        """

    def shown() -> None:
        """Do it.

        >>> 1 + 1
        2
        """

    assert [has_example(each) for each in (described, skipped, shown)] == [False, False, True]
