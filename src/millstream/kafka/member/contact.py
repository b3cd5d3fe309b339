"""Whether the group's coordinator can be reached: an error at the start, a log line later on."""

from __future__ import annotations

import logging
from typing import Final

from millstream.clock import Clock, Deadline
from millstream.errors import BrokerUnavailableError
from millstream.kafka.member.coordinator import MemberCoordinator
from millstream.kafka.member.link import MemberLink

log = logging.getLogger("millstream.kafka.member.group_member")

#: How long the coordinator may be out of reach at the start, while bootstrap servers answer; longer
#: if brokers are waited for longer (`bootstrap_timeout_ms`).
FIRST_CONTACT_TIMEOUT_MS: Final = 60_000
_LOG_INTERVAL_MS: Final = 30_000
_FIRST_LOG_INTERVAL_MS: Final = 10_000


class CoordinatorContact:
    """Looks whether there is a connection to the coordinator.

    A wrong configuration shows at the start, and ends the member in the end: it cannot be told from
    an outage. Once there was a connection, an outage is waited out, however long it takes, with a
    warning each 30 s.
    """

    def __init__(self, link: MemberLink, coordinator: MemberCoordinator, clock: Clock) -> None:
        self._link = link
        self._coordinator = coordinator
        self._clock = clock
        self._timeout_ms = max(FIRST_CONTACT_TIMEOUT_MS, link.config["bootstrap_timeout_ms"])
        self._first: Deadline | None = Deadline(clock, self._timeout_ms)
        self._seen_at_ms = clock.monotonic_ms()
        self._warned_at_ms: int | None = None

    def check(self) -> None:
        """Note how it stands. To be called now and then.

        Raises:
            BrokerUnavailableError: the first contact takes too long.
        """
        now_ms = self._clock.monotonic_ms()
        if self._link.connected(self._coordinator.coordinator_id):
            if self._warned_at_ms is not None:
                log.info("%s: the coordinator of the group is back", self._name)
            self._first = None
            self._seen_at_ms, self._warned_at_ms = now_ms, None
            return
        if self._first is not None and self._first.passed:
            raise self._unreachable()
        since_ms = self._seen_at_ms if self._warned_at_ms is None else self._warned_at_ms
        interval_ms = _LOG_INTERVAL_MS if self._first is None else _FIRST_LOG_INTERVAL_MS
        if now_ms - since_ms >= interval_ms:
            self._warned_at_ms = now_ms
            log.warning(
                "%s: has not reached the coordinator of group %s for %d s; goes on trying%s",
                self._name,
                self._coordinator.group_id,
                (now_ms - self._seen_at_ms) // 1000,
                "" if self._first is None else f". {self._advice()}",
            )

    @property
    def _name(self) -> str:
        return str(self._link.config["client_id"])

    def _advice(self) -> str:
        return (
            f"The brokers advertise {', '.join(self._link.advertised)}: can this host reach all of "
            "them (advertised.listeners), and can the brokers create __consumer_offsets?"
        )

    def _unreachable(self) -> BrokerUnavailableError:
        return BrokerUnavailableError(
            f"Brokers answer, but the coordinator of group {self._coordinator.group_id!r} could "
            f"not be reached within {self._timeout_ms // 1000} s. {self._advice()}"
        )
