"""Validation of the values that exception handlers return."""

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
    HandlerDecision,
    HandlerResponse,
    HandlerResult,
)
from millstream.topology.naming import name_problem

logger = logging.getLogger(__name__)

Handler = Callable[[ErrorContext, Any, Any], HandlerResult]


def decision_of(
    handler: Handler, context: ErrorContext, record: Any, error: Exception
) -> HandlerDecision:
    """Call a handler and return its decision.

    If the handler raises an error or returns an invalid value, the decision is FAIL, and a note on
    `error` gives the reason.
    """
    try:
        answer: Any = handler(context, record, error)
    except Exception as failure:
        logger.exception("the exception handler itself failed (%s)", context)
        add_note(error, f"The exception handler itself failed: {summary_of(failure)}.")
        return HandlerDecision(FAIL)
    if isinstance(answer, HandlerResponse):
        return HandlerDecision(answer)
    problem = _problem(answer)
    if not problem:
        decision: HandlerDecision = answer
        return decision
    message = f"The exception handler returned {repr_of(answer)}, which counts as FAIL: {problem}."
    logger.error("%s (%s)", message, context)
    add_note(
        error,
        f"{message} Return HandlerResponse.CONTINUE or FAIL, optionally with "
        ".with_dead_letters(...).",
    )
    return HandlerDecision(FAIL)


def _problem(answer: Any) -> str:
    """Return why a returned value is invalid; empty if it is valid."""
    if not isinstance(answer, HandlerDecision) or not isinstance(answer.response, HandlerResponse):
        return "it is not a HandlerResponse"
    for letter in answer.dead_letters:
        if not isinstance(letter, DeadLetter):
            return f"{repr_of(letter)} is not a DeadLetter"
        if problem := name_problem(letter.topic):
            return f"{letter.topic!r} is not a valid dead-letter topic. {problem.rstrip('.')}"
        if not all(part is None or isinstance(part, bytes) for part in (letter.key, letter.value)):
            return "the key and value of a DeadLetter must be bytes or None"
    return ""


def should_continue(handler: Handler, context: ErrorContext, record: Any, error: Exception) -> bool:
    """Return whether the handler returns CONTINUE.

    RETRY is not supported and counts as FAIL.
    """
    decision = decision_of(handler, context, record, error)
    if decision.dead_letters:
        # In tasks, `DeadLetters` sends the dead letters and returns only the response.
        logger.warning("dead letters of a global store are not sent (%s)", context)
    if decision.response is RETRY:
        message = "The exception handler returned RETRY, which only applies to errors from Kafka."
        logger.error("%s It counts as FAIL. (%s)", message, context)
        add_note(error, message)
    return decision.response is CONTINUE


def handler_notes(error: Exception) -> str:
    """Return the notes that handlers added to an error, as a suffix for a message."""
    return "".join(f" {note}" for note in notes_of(error))
