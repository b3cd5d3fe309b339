"""What exception handlers answer, and what it means where they give no answer of use."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from millstream.errors import add_note, notes_of, repr_of, summary_of
from millstream.processor.handlers import (
    CONTINUE,
    FAIL,
    RETRY,
    DeadLetter,
    ErrorContext,
    HandlerAnswer,
    HandlerDecision,
    HandlerResponse,
)
from millstream.topology.naming import name_problem

logger = logging.getLogger(__name__)

Handler = Callable[[ErrorContext, Any, Any], HandlerAnswer]


def decision_of(
    handler: Handler, context: ErrorContext, record: Any, error: Exception
) -> HandlerDecision:
    """What the handler says. One that fails itself, or gives no answer of use, means FAIL, and a
    note at the error tells so.
    """
    try:
        answer: Any = handler(context, record, error)
    except Exception as failure:
        logger.exception("the exception handler failed itself (%s)", context)
        add_note(error, f"The exception handler failed itself: {summary_of(failure)}.")
        return HandlerDecision(FAIL)
    if isinstance(answer, HandlerResponse):
        return HandlerDecision(answer)
    problem = _problem(answer)
    if not problem:
        decision: HandlerDecision = answer
        return decision
    wrong = f"The exception handler answered {repr_of(answer)}, which is taken as FAIL: {problem}."
    logger.error("%s (%s)", wrong, context)
    add_note(
        error,
        f"{wrong} Let it return HandlerResponse.CONTINUE or FAIL, perhaps with "
        ".with_dead_letters(...).",
    )
    return HandlerDecision(FAIL)


def _problem(answer: Any) -> str:
    """Why an answer is of no use; empty if it is."""
    if not isinstance(answer, HandlerDecision) or not isinstance(answer.response, HandlerResponse):
        return "it is no HandlerResponse"
    for letter in answer.dead_letters:
        if not isinstance(letter, DeadLetter):
            return f"{repr_of(letter)} is no DeadLetter"
        if problem := name_problem(letter.topic):
            return f"no letter can be sent to topic {letter.topic!r}. {problem.rstrip('.')}"
        if not all(part is None or isinstance(part, bytes) for part in (letter.key, letter.value)):
            return "key and value of a DeadLetter are bytes or None"
    return ""


def goes_on(handler: Handler, context: ErrorContext, record: Any, error: Exception) -> bool:
    """Whether the handler says CONTINUE. To RETRY is no answer here, and means FAIL."""
    decision = decision_of(handler, context, record, error)
    if decision.dead_letters:
        # Those of a task are sent by `DeadLetters`, which hands on the response alone.
        logger.warning("dead letters of a global store are not sent (%s)", context)
    if decision.response is RETRY:
        wrong = "The exception handler answered RETRY, which only helps where Kafka failed."
        logger.error("%s It is taken as FAIL. (%s)", wrong, context)
        add_note(error, wrong)
    return decision.response is CONTINUE


def handlers_failure(error: Exception) -> str:
    """What is wrong with the handlers that were asked about an error, to be put behind a message;
    empty if nothing is."""
    return "".join(f" {note}" for note in notes_of(error))
