"""What follows when a task is to be retried: when, how often, and what if that does not help."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from millstream.durations import milliseconds
from millstream.errors import ConfigError

#: What becomes of a task whose last attempt has failed.
AfterLast = Literal["dead_letter", "drop", "fail"]
#: What becomes of a task that could not be written to the retry or dead-letter topic.
OnSendFailure = Literal["keep", "drop", "fail"]

_AFTER_LAST: Final[tuple[AfterLast, ...]] = ("dead_letter", "drop", "fail")
_ON_SEND_FAILURE: Final[tuple[OnSendFailure, ...]] = ("keep", "drop", "fail")
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """Pauses that grow with each retry of a task, up to a longest one.

    A task with a long pause holds up none behind it in the retry topic, but counts as pending while
    it waits.

    Args:
        first: the pause before the first retry.
        most: the longest pause.
        factor: how many times longer each pause is than the one before, at least 1.

    Raises:
        ConfigError: a pause is shorter than 1 ms, `most` is shorter than `first`, or the factor is
            below 1.

    Example:
        >>> backoff = ExponentialBackoff(timedelta(seconds=1), most=timedelta(seconds=5))
        >>> [backoff.pause_ms(retry_count) for retry_count in range(4)]
        [1000, 2000, 4000, 5000]
    """

    first: timedelta
    most: timedelta
    factor: float = 2.0

    def __post_init__(self) -> None:
        first = milliseconds("ExponentialBackoff", "first", self.first, least_ms=1)
        most = milliseconds("ExponentialBackoff", "most", self.most, least_ms=1)
        if most < first:
            raise ConfigError(
                f"ExponentialBackoff got most={self.most!r}, which is shorter than "
                f"first={self.first!r}."
            )
        if isinstance(self.factor, bool) or not isinstance(self.factor, int | float):
            raise ConfigError(f"ExponentialBackoff got factor={self.factor!r}, which is no number.")
        if not 1 <= self.factor < float("inf"):
            raise ConfigError(
                f"ExponentialBackoff got factor={self.factor!r}, but it must be at least 1, and "
                "finite."
            )

    def pause_ms(self, retry_count: int) -> int:
        """The pause before the next retry, in milliseconds.

        Args:
            retry_count: how many retries of the task there were before.

        Example:
            >>> ExponentialBackoff(timedelta(seconds=1), most=timedelta(hours=1)).pause_ms(1_000)
            3600000
        """
        most = self.most // timedelta(milliseconds=1)
        try:
            return min(
                most, int(self.first // timedelta(milliseconds=1) * self.factor**retry_count)
            )
        except OverflowError:
            return most


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The policy for tasks that are to be retried, through a topic of their own.

    Decaton has the backoff and the topic; it leaves everything else to the user's code, and loses a
    task that cannot be written to the retry topic.

    Args:
        backoff: the pause before a retry, which begins at least so much later.
        topic: the retry topic; None is the topic's name and `-retry`. It must exist.
        max_attempts: how often a task is tried, the first time included; None is without end.
        after_last: what becomes of a task whose last attempt has failed: `"dead_letter"` writes it
            to `dead_letter_topic`, which is what happens if there is one; `"drop"` finishes it with
            a line in the log; `"fail"` ends the thread, and the task is done again after a restart.
        dead_letter_topic: where tasks go whose last attempt has failed. It must exist.
        on_send_failure: what becomes of a task that the retry or the dead-letter topic did not
            take, because it is too large, say, or the brokers did not answer: `"keep"` leaves it
            unfinished, and processes it again here after the pause; `"drop"` finishes it with a
            line in the log, as Decaton does; `"fail"` ends the thread, and it is done again after a
            restart. What is wrong with every record, such as a missing right, ends the thread
            always; so does what was refused in a transaction, under exactly-once.

    Raises:
        ConfigError: a value is none of these, or two do not fit together.

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
            milliseconds("Retry", "backoff", self.backoff, least_ms=0)
        for name, topic in (("topic", self.topic), ("dead_letter_topic", self.dead_letter_topic)):
            if topic is not None and not (isinstance(topic, str) and _TOPIC.fullmatch(topic)):
                raise ConfigError(
                    f"Retry got {name}={topic!r}, but topics have 1 to 249 ASCII letters, digits, "
                    "'.', '_' and '-'."
                )
        if self.topic is not None and self.topic == self.dead_letter_topic:
            raise ConfigError(
                f"Retry got {self.topic!r} both for topic and for dead_letter_topic: tasks that "
                "have failed for good would be tried again."
            )
        self._check_choices()
        self._check_attempts()

    def topic_for(self, topic: str) -> str:
        """The retry topic of a topic.

        Example:
            >>> Retry(backoff=timedelta(0), topic="again").topic_for("emails")
            'again'
        """
        return f"{topic}-retry" if self.topic is None else self.topic

    def next_delay_ms(self, retry_count: int) -> int | None:
        """The pause before the next retry of a task, in milliseconds; None after its last attempt.

        Args:
            retry_count: how many retries of the task there were before, as its metadata tell.

        Example:
            >>> Retry(backoff=timedelta(seconds=1)).next_delay_ms(7)
            1000
        """
        if self.max_attempts is not None and retry_count + 1 >= self.max_attempts:
            return None
        return self.pause_ms(retry_count)

    def pause_ms(self, retry_count: int) -> int:
        """The pause after so many retries, whether there is a next one or not, in milliseconds.

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
                f"dead_letter_topic={self.dead_letter_topic!r}: either both or neither."
            )

    def _check_attempts(self) -> None:
        attempts = self.max_attempts
        if attempts is None:
            if self.after_last is not None:
                raise ConfigError(
                    f"Retry got after_last={self.after_last!r}, but without max_attempts there is "
                    "no last one. Give max_attempts."
                )
            return
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise ConfigError(f"Retry got max_attempts={attempts!r}, but it must be an int from 1.")
        if self.after_last is None:
            raise ConfigError(
                f"Retry got max_attempts={attempts}, but not what follows the last one. Give "
                "dead_letter_topic, or after_last='drop' or after_last='fail'."
            )


def _not_one_of(name: str, value: object, known: tuple[str, ...]) -> ConfigError:
    return ConfigError(f"Retry got {name}={value!r}, but it must be one of {', '.join(known)}.")
