"""Trying a case: what comes of it, compared with what is written down."""

from __future__ import annotations

from bad_inputs.case import Case, Dropped, Letter, Refused, Seen
from millstream.errors import StreamsError


def differences(case: Case, *arguments: object) -> str:
    """What is not as it is written down; empty if all is.

    Args:
        case: to be tried.
        arguments: what it takes: a broker, or nothing.
    """
    expected = case.outcome
    try:
        found = case.do(*arguments)
    except (Exception, SystemExit) as error:
        if not isinstance(expected, Refused):
            return f"it raised {type(error).__name__}: {error}"
        return _told_wrongly(expected, error)
    if isinstance(expected, Refused):
        return f"nothing was raised, but it gave {found!r}"
    if isinstance(found, Seen):
        count = expected.count if isinstance(expected, Dropped | Letter) else 0
        wanted = Seen(expected.out, count, count if isinstance(expected, Letter) else 0)
        return (
            ""
            if list(found.out) == list(wanted.out or ())
            and (
                found.dropped,
                found.letters,
            )
            == (wanted.dropped, wanted.letters)
            else f"{found!r} is not {wanted!r}"
        )
    return "" if found == expected.out else f"{found!r} is not {expected.out!r}"


def _told_wrongly(expected: Refused, error: BaseException) -> str:
    told = str(error)
    parts = [expected.text] if isinstance(expected.text, str) else expected.text
    missing = [part for part in parts if part not in told]
    if type(error) is not expected.error:
        return f"it raised {type(error).__name__}, not {expected.error.__name__}: {error}"
    if missing:
        return f"the error does not say {missing}: {error}"
    # What Millstream raises on purpose ends a sentence, and says what to do in one.
    if isinstance(error, StreamsError) and not error.message.rstrip().endswith((".", "?", ")")):
        return f"the message is no sentence: {error.message!r}"
    return ""
