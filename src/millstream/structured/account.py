"""What of Spark's account of a failure says something to the user."""

from __future__ import annotations

import re
from typing import Final

from millstream.errors import text_of

#: The last line of a Python traceback.
_RAISED: Final = re.compile(r"[\w.]*(Error|Exception|Interrupt): ")
_MOST_CHARS: Final = 1_500


def reason_told(error: BaseException) -> str:
    """The error that a Python worker raised, or else how the account begins."""
    lines = [line.strip() for line in text_of(error).splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)]
    return (raised[-1] if raised else " ".join(lines[:2]) or "no reason told")[:_MOST_CHARS]
