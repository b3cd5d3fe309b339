"""Run a case and compare the result with its expected outcome."""

from __future__ import annotations

from bad_inputs.case import Case, DeadLettered, Dropped, Raises, Result
from millstream.errors import StreamsError


def differences(case: Case, *arguments: object) -> str:
    """Describe the difference from the expected outcome; empty if there is none.

    Args:
        case: the case.
        arguments: a broker, if the case needs one.
    """
    expected = case.outcome
    try:
        found = case.run(*arguments)
    except (Exception, SystemExit) as error:
        if not isinstance(expected, Raises):
            return f"raised {type(error).__name__}: {error}"
        return _error_difference(expected, error)
    if isinstance(expected, Raises):
        return f"raised no error, but returned {found!r}"
    if isinstance(found, Result):
        count = expected.count if isinstance(expected, Dropped | DeadLettered) else 0
        expected_result = Result(
            expected.out, count, count if isinstance(expected, DeadLettered) else 0
        )
        return (
            ""
            if list(found.out) == list(expected_result.out or ())
            and (
                found.dropped,
                found.letters,
            )
            == (expected_result.dropped, expected_result.letters)
            else f"{found!r} is not {expected_result!r}"
        )
    return "" if found == expected.out else f"{found!r} is not {expected.out!r}"


def _error_difference(expected: Raises, error: BaseException) -> str:
    message = str(error)
    parts = [expected.text] if isinstance(expected.text, str) else expected.text
    missing = [part for part in parts if part not in message]
    if type(error) is not expected.error:
        return f"raised {type(error).__name__}, not {expected.error.__name__}: {error}"
    if missing:
        return f"the message lacks {missing}: {error}"
    # Messages of Millstream's errors are full sentences.
    if isinstance(error, StreamsError) and not error.message.rstrip().endswith((".", "?", ")")):
        return f"the message is not a sentence: {error.message!r}"
    return ""
