"""Headers that are odd."""

from __future__ import annotations

from typing import Any

from bad_inputs.case import Accepted, Case, Family, In, Outcome, Refused, ms, through
from bad_inputs.nulls import TEXT
from millstream.errors import ProcessingError


class Tells(ms.Processor):  # type: ignore[misc]
    """Gives the headers of each record as its value."""

    def process(self, record: Any) -> None:
        self.context.forward(record.with_value(str(list(record.headers))))


def headers(*given: Any) -> Any:
    """A record that comes with these."""
    return through(
        lambda b: b.stream("in", **TEXT).process(Tells).to("out", **TEXT), In(headers=list(given))
    )


def made(given: Any) -> Any:
    """A processor that makes a record with these."""

    class Makes(ms.Processor):  # type: ignore[misc]
        def process(self, record: Any) -> None:
            self.context.forward(record.with_headers(given))

    return through(lambda b: b.stream("in", **TEXT).process(Makes).to("out", **TEXT), In())


def case(id: str, what: str, do: Any, outcome: Outcome) -> Case:
    return Case(id, what, do, outcome)


def refused(*told: str) -> Refused:
    return Refused(ProcessingError, ["header", *told])


FAMILY = Family(
    "Headers",
    "Whatever Kafka takes is kept as it is. What it would not take is refused where it is made.",
    [
        case("empty-name", "an empty name", headers(("", b"x")), Accepted([("k", "[('', b'x')]")])),
        case(
            "empty-value", "an empty value", headers(("a", b"")), Accepted([("k", "[('a', b'')]")])
        ),
        case("no-value", "no value", headers(("a", None)), Accepted([("k", "[('a', None)]")])),
        case(
            "twice",
            "a name that comes twice",
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
            "a processor that gives text as a value",
            made([("a", "x")]),
            refused("('a', 'x')"),
        ),
        case(
            "bytes-name",
            "one that gives bytes as a name",
            made([(b"a", b"x")]),
            refused("(b'a', b'x')"),
        ),
        case("dict", "one that gives a dict", made({"a": b"x"}), refused("pairs")),
        case("triple", "one that gives three parts", made([("a", b"x", 1)]), refused("pairs")),
        case("none", "one that gives None", made(None), refused("pairs")),
    ],
)
