"""Unusual and invalid headers."""

from __future__ import annotations

from typing import Any

from bad_inputs.case import Accepted, Case, Family, Input, Outcome, Raises, ms, process
from bad_inputs.nulls import TEXT
from millstream.errors import ProcessingError


class HeadersAsValue(ms.Processor):  # type: ignore[misc]
    """Forwards each record's headers as its value."""

    def process(self, record: Any) -> None:
        self.context.forward(record.with_value(str(list(record.headers))))


def headers(*given: Any) -> Any:
    """Process a record with these headers."""
    return process(
        lambda b: b.stream("in", **TEXT).process(HeadersAsValue).to("out", **TEXT),
        Input(headers=list(given)),
    )


def set_headers(given: Any) -> Any:
    """Run a processor that forwards a record with these headers."""

    class SetHeaders(ms.Processor):  # type: ignore[misc]
        def process(self, record: Any) -> None:
            self.context.forward(record.with_headers(given))

    return process(lambda b: b.stream("in", **TEXT).process(SetHeaders).to("out", **TEXT), Input())


def case(id: str, description: str, run: Any, outcome: Outcome) -> Case:
    return Case(id, description, run, outcome)


def raises(*parts: str) -> Raises:
    return Raises(ProcessingError, ["header", *parts])


FAMILY = Family(
    "Headers",
    "Headers that Kafka accepts are kept unmodified. Others are rejected where they are created.",
    [
        case("empty-name", "an empty name", headers(("", b"x")), Accepted([("k", "[('', b'x')]")])),
        case(
            "empty-value", "an empty value", headers(("a", b"")), Accepted([("k", "[('a', b'')]")])
        ),
        case("no-value", "no value", headers(("a", None)), Accepted([("k", "[('a', None)]")])),
        case(
            "twice",
            "a duplicate name",
            headers(("a", b"1"), ("a", b"2")),
            Accepted([("k", "[('a', b'1'), ('a', b'2')]")]),
        ),
        case(
            "not-utf8",
            "a value that is not UTF-8",
            headers(("a", b"\xff")),
            Accepted([("k", "[('a', b'\\xff')]")]),
        ),
        case(
            "text",
            "a processor that sets text as a value",
            set_headers([("a", "x")]),
            raises("('a', 'x')"),
        ),
        case(
            "bytes-name",
            "a processor that sets bytes as a name",
            set_headers([(b"a", b"x")]),
            raises("(b'a', b'x')"),
        ),
        case("dict", "a processor that sets a dict", set_headers({"a": b"x"}), raises("pairs")),
        case(
            "triple",
            "a processor that sets tuples of three items",
            set_headers([("a", b"x", 1)]),
            raises("pairs"),
        ),
        case("none", "a processor that sets None", set_headers(None), raises("pairs")),
    ],
)
