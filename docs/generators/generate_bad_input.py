"""Writes docs/build/bad-input.md from the test cases in tests/bad_inputs.

python docs/generators/generate_bad_input.py
"""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[2] / "tests"
PAGE = Path(__file__).parents[1] / "build" / "bad-input.md"
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

from bad_inputs.case import Accepted, DeadLettered, Dropped, Family, Filtered, Outcome, Raises  # noqa: E402
from bad_inputs.families import FAMILIES  # noqa: E402
from bad_inputs.on_kafka import FAMILY as ON_KAFKA  # noqa: E402
from generated import write_or_check  # noqa: E402

_ALL = (*FAMILIES, ON_KAFKA)
_LONGEST = 100

_START = """# Bad input

The outcomes of {count} kinds of bad input: records, functions, settings and topologies. A test
verifies each row. `python docs/generators/generate_bad_input.py` generates this page from the same
cases.

- An *error* is shown with its class and a part of its message. During processing, an error ends the
  stream thread, unless a [handler](errors.md#exception-handlers) decides otherwise. Before that, it
  is raised at the line with the mistake.
- *Dropped* means that the record is logged and counted (`dropped-records-total`).
- *Dead letter* means that the record is dropped and written to the
  [dead-letter queue](errors.md#the-dead-letter-queue).
- *Filtered out* means that the record is neither forwarded nor counted, as in Kafka Streams.
- *Accepted* means that Millstream does not treat the input as a mistake.
"""


def page() -> str:
    """Return the whole page."""
    count = sum(len(family.cases) for family in _ALL)
    return _START.format(count=count) + "".join(map(_part, _ALL))


def _part(family: Family) -> str:
    rows = "".join(
        f"| {_cell(case.description)} | {describe(case.outcome)} |\n" for case in family.cases
    )
    return f"\n## {family.title}\n\n{family.about}\n\n| Input | Outcome |\n|---|---|\n{rows}"


def describe(outcome: Outcome) -> str:
    """Return the text of the second column."""
    match outcome:
        case Raises(error, text):
            parts = [text] if isinstance(text, str) else text
            # Omit the location of the declaration, which is a line in the tests.
            message = " … ".join(part for part in parts if "bad_inputs/" not in part)
            return f"`{error.__name__}`: “{_cell(message)}”"
        case Dropped(count, out):
            return f"dropped{_with_output(count, out)}"
        case DeadLettered(count, out):
            return f"dead letter{_with_output(count, out)}"
        case Filtered(out):
            return f"filtered out{_with_output(1, out)}"
        case Accepted(out):
            return f"accepted: {_code(out)}" if out else "accepted"


def _with_output(count: int, out: object) -> str:
    several = f" ({count} records)" if count > 1 else ""
    return f"{several}; output: {_code(out)}" if out else several


def _code(out: object) -> str:
    text = str(out)
    return f"`{_cell(text if len(text) <= _LONGEST else text[:_LONGEST] + '…')}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    raise SystemExit(write_or_check(__doc__, [(PAGE, page())], sys.argv[1:]))
