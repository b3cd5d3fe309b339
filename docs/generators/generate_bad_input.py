"""Writes docs/build/bad-input.md from the cases that the tests try.

python docs/generators/generate_bad_input.py
"""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[2] / "tests"
PAGE = Path(__file__).parents[1] / "build" / "bad-input.md"
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

from bad_inputs.case import Accepted, Dropped, Family, Filtered, Letter, Outcome, Refused  # noqa: E402
from bad_inputs.families import FAMILIES  # noqa: E402
from bad_inputs.on_kafka import FAMILY as ON_KAFKA  # noqa: E402
from generated import written  # noqa: E402

_ALL = (*FAMILIES, ON_KAFKA)
_LONGEST = 100

_START = """# Bad input

What becomes of {count} kinds of bad input: records, functions, settings and topologies. A test
tries each row, and this page is made of the same cases by
`python docs/generators/generate_bad_input.py`.

- An *error* names its class and some of what it says. While records are processed it ends the
  stream thread, unless a [handler](errors.md#records-that-fail) says otherwise; before, it stands
  where the mistake was made.
- *Left out* means that the record is logged and counted (`dropped-records-total`).
- *Dead letter* means that it is left out and goes to the
  [dead-letter queue](errors.md#the-dead-letter-queue).
- *Filtered out* means that it goes no further, and is not counted, as in Kafka Streams.
- *Accepted* means that it is no mistake for Millstream.
"""


def page() -> str:
    """The whole page."""
    count = sum(len(family.cases) for family in _ALL)
    return _START.format(count=count) + "".join(map(_part, _ALL))


def _part(family: Family) -> str:
    rows = "".join(f"| {_cell(case.what)} | {told(case.outcome)} |\n" for case in family.cases)
    return f"\n## {family.title}\n\n{family.about}\n\n| What | Outcome |\n|---|---|\n{rows}"


def told(outcome: Outcome) -> str:
    """An outcome in words."""
    match outcome:
        case Refused(error, text):
            parts = [text] if isinstance(text, str) else text
            # Where it was declared is a line of the tests.
            said = " … ".join(part for part in parts if "bad_inputs/" not in part)
            return f"`{error.__name__}`: “{_cell(said)}”"
        case Dropped(count, out):
            return f"left out{_but(count, out)}"
        case Letter(count, out):
            return f"dead letter{_but(count, out)}"
        case Filtered(out):
            return f"filtered out{_but(1, out)}"
        case Accepted(out):
            return f"accepted: {_code(out)}" if out else "accepted"


def _but(count: int, out: object) -> str:
    several = f" ({count} records)" if count > 1 else ""
    return f"{several}; out comes {_code(out)}" if out else several


def _code(out: object) -> str:
    text = str(out)
    return f"`{_cell(text if len(text) <= _LONGEST else text[:_LONGEST] + '…')}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    raise SystemExit(written(__doc__, [(PAGE, page())], sys.argv[1:]))
