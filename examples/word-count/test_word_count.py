"""Tests of splitting lines into words, and of counting them."""

from __future__ import annotations

import pytest
from word_count import word_count, words

from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", []),
        ("The Mill", ["the", "mill"]),
        ("Newton's rays, bent;", ["newton's", "rays", "bent"]),
        ("snake_case 42", ["snake", "case", "42"]),
        ("Æther Ærø", ["æther", "ærø"]),
    ],
)
def test_words_of_a_line(line: str, found: list[str]) -> None:
    assert words(line) == found


def test_each_line_updates_the_counts() -> None:
    with TopologyTestDriver(word_count()) as driver:
        lines = driver.create_input_topic("lines", key=STRING, value=STRING)
        counts = driver.create_output_topic("word-counts", key=STRING, value=LONG)
        lines.pipe_value("to be or not")
        assert counts.read_key_values() == [("to", 1), ("be", 1), ("or", 1), ("not", 1)]
        lines.pipe_value("to be")
        assert counts.read_key_values() == [("to", 2), ("be", 2)]
