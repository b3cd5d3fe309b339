"""Retry policy of tasks: backoff, attempts, and the handling of final failures."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from millstream.durations import milliseconds
from millstream.errors import ConfigError

#: The handling of a task without attempts left.
AfterLast = Literal["dead_letter", "drop", "fail"]
#: The handling of a task that could not be written to the retry or dead-letter topic.
OnSendFailure = Literal["keep", "drop", "fail"]

_AFTER_LAST: Final[tuple[AfterLast, ...]] = ("dead_letter", "drop", "fail")
_ON_SEND_FAILURE: Final[tuple[OnSendFailure, ...]] = ("keep", "drop", "fail")
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """A backoff that grows exponentially up to a maximum.

    Each task of the retry topic is retried when its own backoff is over: a task with a long backoff
    does not delay the tasks behind it, except that the partition of the retry topic is paused while
    `max_pending_records` tasks wait.

    Args:
        first: the backoff before the first retry.
        most: the maximum backoff.
        factor: the factor between consecutive backoffs, at least 1.

    Raises:
        ConfigError: a backoff is shorter than 1 ms, `most` is shorter than `first`, or the factor
            is below 1.

    Example:
        >>> backoff = ExponentialBackoff(timedelta(seconds=1), most=timedelta(seconds=5))
        >>> [backoff.pause_ms(retry_count) for retry_count in range(4)]
        [1000, 2000, 4000, 5000]
    """

    first: timedelta
    most: timedelta
    factor: float = 2.0

    def __post_init__(self) -> None:
        first = milliseconds("ExponentialBackoff", "first", self.first, min_ms=1)
        most = milliseconds("ExponentialBackoff", "most", self.most, min_ms=1)
        if most < first:
            raise ConfigError(
                f"ExponentialBackoff got most={self.most!r}, which is shorter than "
                f"first={self.first!r}."
            )
        if isinstance(self.factor, bool) or not isinstance(self.factor, int | float):
            raise ConfigError(
                f"ExponentialBackoff got factor={self.factor!r}, which is not a number."
            )
        if not 1 <= self.factor < float("inf"):
            raise ConfigError(
                f"ExponentialBackoff got factor={self.factor!r}, but it must be at least 1, and "
                "finite."
            )

    def pause_ms(self, retry_count: int) -> int:
        """Return the backoff before the next retry in milliseconds.

        Args:
            retry_count: the number of previous retries of the task.

        Example:
            >>> ExponentialBackoff(timedelta(seconds=1), most=timedelta(hours=1)).pause_ms(1_000)
            3600000
        """
        most = self.most // timedelta(milliseconds=1)
        first = self.first // timedelta(milliseconds=1)
        try:
            # A float power overflows immediately, whereas an int power takes very long.
            return min(most, int(first * float(self.factor) ** retry_count))
        except OverflowError:
            return most


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The policy for tasks that are retried through a retry topic.

    Decaton has only the backoff and the topic. It leaves the rest to the user's code, and loses
    tasks that cannot be written to the retry topic.

    Args:
        backoff: the minimum pause before a retry.
        topic: the retry topic, which must exist; None means the topic's name with the suffix
            `-retry`.
        max_attempts: the maximum number of attempts, including the first; None means unlimited.
        after_last: the handling of a task without attempts left: `"dead_letter"`, the default with
            a `dead_letter_topic`, writes it to that topic; `"drop"` completes it and logs the
            error; `"fail"` ends the thread, and the task is processed again after a restart.
        dead_letter_topic: the topic for tasks without attempts left. It must exist.
        on_send_failure: the handling of a task that could not be written to the retry or
            dead-letter topic, for example because it is too large or the brokers did not respond:
            `"keep"` leaves it uncompleted and processes it again in the same thread after the
            backoff; `"drop"` completes it and logs the error, as Decaton does; `"fail"` ends the
            thread, and the task is processed again after a restart. Errors that affect every
            record, such as missing permissions, always end the thread.

    Raises:
        ConfigError: an argument is invalid or conflicts with another one.

    Example:
        >>> retry = Retry(backoff=timedelta(seconds=10), max_attempts=3, dead_letter_topic="dead")
        >>> retry.topic_for("emails")
        'emails-retry'
        >>> [retry.next_delay_ms(retry_count) for retry_count in range(3)]
        [10000, 10000, None]
        >>> retry.after_last
        'dead_letter'
    """

    backoff: timedelta | ExponentialBackoff
    topic: str | None = None
    max_attempts: int | None = None
    after_last: AfterLast | None = None
    dead_letter_topic: str | None = None
    on_send_failure: OnSendFailure = "keep"

    def __post_init__(self) -> None:
        if not isinstance(self.backoff, ExponentialBackoff):
            milliseconds("Retry", "backoff", self.backoff, min_ms=0)
        for name, topic in (("topic", self.topic), ("dead_letter_topic", self.dead_letter_topic)):
            if topic is not None and not (isinstance(topic, str) and _TOPIC.fullmatch(topic)):
                raise ConfigError(
                    f"Retry got {name}={topic!r}, but topics have 1 to 249 ASCII letters, digits, "
                    "'.', '_' and '-'."
                )
        if self.topic is not None and self.topic == self.dead_letter_topic:
            raise ConfigError(
                f"Retry got {self.topic!r} both for topic and for dead_letter_topic, so tasks "
                "without attempts left would be retried."
            )
        self._check_choices()
        self._check_attempts()

    def topic_for(self, topic: str) -> str:
        """Return the retry topic of a topic.

        Example:
            >>> Retry(backoff=timedelta(0), topic="again").topic_for("emails")
            'again'
        """
        return f"{topic}-retry" if self.topic is None else self.topic

    def next_delay_ms(self, retry_count: int) -> int | None:
        """Return the backoff before the next retry in ms; None after the last attempt.

        Args:
            retry_count: the number of previous retries, from the metadata of the task.

        Example:
            >>> Retry(backoff=timedelta(seconds=1)).next_delay_ms(7)
            1000
        """
        if self.max_attempts is not None and retry_count + 1 >= self.max_attempts:
            return None
        return self.pause_ms(retry_count)

    def pause_ms(self, retry_count: int) -> int:
        """Return the backoff after a number of retries in ms, ignoring `max_attempts`.

        Example:
            >>> Retry(backoff=timedelta(seconds=1)).pause_ms(0)
            1000
        """
        if isinstance(self.backoff, ExponentialBackoff):
            return self.backoff.pause_ms(retry_count)
        return self.backoff // timedelta(milliseconds=1)

    def _check_choices(self) -> None:
        if self.after_last is None and self.dead_letter_topic is not None:
            object.__setattr__(self, "after_last", "dead_letter")
        if self.after_last is not None and self.after_last not in _AFTER_LAST:
            raise _not_one_of("after_last", self.after_last, _AFTER_LAST)
        if self.on_send_failure not in _ON_SEND_FAILURE:
            raise _not_one_of("on_send_failure", self.on_send_failure, _ON_SEND_FAILURE)
        if (self.after_last == "dead_letter") != (self.dead_letter_topic is not None):
            raise ConfigError(
                f"Retry got after_last={self.after_last!r} and "
                f"dead_letter_topic={self.dead_letter_topic!r}. Pass both or neither."
            )

    def _check_attempts(self) -> None:
        attempts = self.max_attempts
        if attempts is None:
            if self.after_last is not None:
                raise ConfigError(
                    f"Retry got after_last={self.after_last!r}, but without max_attempts there is "
                    "no last attempt. Pass max_attempts."
                )
            return
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise ConfigError(
                f"Retry got max_attempts={attempts!r}, but it must be an int of at least 1."
            )
        if self.after_last is None:
            raise ConfigError(
                f"Retry got max_attempts={attempts}, but no action for the last failure. Pass "
                "dead_letter_topic, or after_last='drop' or after_last='fail'."
            )


def _not_one_of(name: str, value: object, known: tuple[str, ...]) -> ConfigError:
    return ConfigError(f"Retry got {name}={value!r}, but it must be one of {', '.join(known)}.")
