"""What a user lacks on a broker with ACLs: each missing right is one error that names it, and how
to grant it; once it is granted the application works."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.broker.access import AUTHORIZER, Right, granted
from support.broker.topics import fill, latest, unique
from support.running.lone_thread import LoneControl
from support.waiting import wait_for

from millstream import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE_V2,
    KafkaStreams,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from millstream.errors import AccessDeniedError, StreamsError
from millstream.runtime.build_thread import build_thread
from millstream.runtime.control import ThreadOutcome
from millstream.runtime.loop.stream_thread import StreamThread
from millstream.runtime.ownership.restore_reports import RestoreAudience
from millstream.runtime.thread_identity import ThreadIdentity
from millstream.serdes import LONG, STRING
from millstream.testing import EmbeddedKafka

USER = "bob"
#: A thread has to give up within this time, and does within two seconds.
SOON_S = 30.0


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedKafka]:
    """A broker that asks what bob may do."""
    with EmbeddedKafka(
        security_protocol="SASL_PLAINTEXT", users={USER: "secret"}, properties=AUTHORIZER
    ) as kafka:
        yield kafka


class Counting:
    """An application with all kinds of topics, and all that it needs."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path, guarantee: str = AT_LEAST_ONCE) -> None:
        self._kafka = kafka
        self.name = unique("guarded")
        self.source, self.sink = f"from-{self.name}", f"to-{self.name}"
        for topic in (self.source, self.sink):
            kafka.create_topic(topic)
        self.is_exact_once = guarantee == EXACTLY_ONCE_V2
        self.config = StreamsConfig(
            application_id=self.name,
            bootstrap_servers=kafka.bootstrap_servers,
            state_dir=str(folder / self.name),
            processing_guarantee=guarantee,
            commit_interval_ms=100,
            repartition_purge_interval_ms=100,
            clients=kafka.client_settings(USER),
        )

    def needed(self) -> list[Right]:
        """As docs/operations/secured-clusters.md lists them."""
        own = ("READ", "WRITE", "CREATE", "DELETE")
        rights = [
            Right("READ", "TOPIC", self.source),
            Right("WRITE", "TOPIC", self.sink),
            Right("READ", "GROUP", self.name),
            *(Right(operation, "TOPIC", f"{self.name}-*") for operation in own),
        ]
        if self.is_exact_once:
            rights.append(Right("WRITE", "TRANSACTIONAL_ID", f"{self.name}-*"))
        return rights

    def all_but(self, operation: str, kind: str, of: str) -> list[Right]:
        lacking = Right(operation, kind, of)
        rights = self.needed()
        rights.remove(lacking)
        return rights

    def topology(self) -> Topology:
        builder = StreamsBuilder()
        (
            builder.stream(self.source, key=STRING, value=STRING)
            .group_by(lambda _, word: word, key=STRING, value=STRING)
            .count(store="counts")
            .to_stream()
            .to(self.sink, key=STRING, value=LONG)
        )
        return builder.build()

    def write(self) -> None:
        fill(self._kafka.unsecured_servers, self.source, ((None, b"%d" % i) for i in range(10)))

    def is_done(self) -> bool:
        return len(latest(self._kafka.unsecured_servers, self.sink)) == 10

    def thread(self, control: LoneControl) -> StreamThread:
        identity = ThreadIdentity(f"{self.name}-StreamThread-1", 1, uuid.uuid4())
        return build_thread(self.topology(), self.config, identity, control, RestoreAudience())


@contextmanager
def at_work(app: Counting) -> Iterator[list[ThreadOutcome]]:
    """A thread without Spark, and the one outcome it has in the end."""
    control = LoneControl()
    outcomes: list[ThreadOutcome] = []
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: outcomes.append(app.thread(control).run()))
        try:
            yield outcomes
        finally:
            control.close()
            running.result(SOON_S)


def command(operation: str, resource: str) -> str:
    return (
        "kafka-acls --bootstrap-server ... --add --allow-principal 'User:bob' "
        f"--operation {operation} {resource}"
    )


@pytest.mark.parametrize(
    ("operation", "kind", "place"),
    [("READ", "TOPIC", "from-{}"), ("WRITE", "TOPIC", "to-{}"), ("READ", "GROUP", "{}")],
)
def test_told_by_start(
    guarded: EmbeddedKafka, tmp_path: Path, operation: str, kind: str, place: str
) -> None:
    """Goal: before Spark is started; with the right to see the topic or group, and without."""
    app = Counting(guarded, tmp_path)
    name = place.format(app.name)
    rights = app.all_but(operation, kind, name)
    sees = Right("DESCRIBE", kind, name)
    for granted_now in (rights, [*rights, sees]):
        with (
            granted(guarded, USER, granted_now),
            pytest.raises(AccessDeniedError) as raised,
        ):
            KafkaStreams(app.topology(), app.config).start()
        told = str(raised.value)
        assert f"User:bob lacks {operation} on {kind.lower()} {name}." in told
        assert command(operation.capitalize(), f"--{kind.lower()} '{name}'") in told


def test_all_that_is_missing_is_told_at_once(guarded: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: one command after the other need not be found out by trying."""
    app = Counting(guarded, tmp_path)
    seen = [Right("DESCRIBE", "TOPIC", topic) for topic in (app.source, app.sink)]
    with granted(guarded, USER, seen), pytest.raises(AccessDeniedError) as raised:
        KafkaStreams(app.topology(), app.config).start()
    own = [f"{app.name}-counts-{kind}" for kind in ("changelog", "repartition")]
    lacking = [
        f"READ on topic {app.source}",
        *(f"{operation} on topic {topic}" for topic in own for operation in ("READ", "WRITE")),
        f"WRITE on topic {app.sink}",
        f"READ on group {app.name}",
    ]
    assert f"User:bob lacks {', '.join(lacking)}." in str(raised.value)


class Case(NamedTuple):
    """A right without which a thread ends, and what it says then."""

    guarantee: str
    operation: str
    kind: str
    told: str
    command: str


_COUNTS = "{0}-counts-repartition"
_TOPIC = "--topic '{0}-counts-"
CASES = [
    *(
        Case(guarantee, operation, "TOPIC", f"{operation} on topic {_COUNTS}", _TOPIC)
        for guarantee in (AT_LEAST_ONCE, EXACTLY_ONCE_V2)
        for operation in ("READ", "WRITE")
    ),
    Case(AT_LEAST_ONCE, "CREATE", "TOPIC", "CREATE on topic {0}-counts-", _TOPIC),
    Case(
        EXACTLY_ONCE_V2,
        "WRITE",
        "TRANSACTIONAL_ID",
        "WRITE on transactional id {0}-",
        "--transactional-id '{0}-' --resource-pattern-type prefixed",
    ),
]


def outcome_without(
    kafka: EmbeddedKafka, folder: Path, case: Case
) -> tuple[Counting, StreamsError | None]:
    """What a thread ends with that lacks one right; and once it is granted, all is done."""
    app = Counting(kafka, folder, case.guarantee)
    app.write()
    with granted(kafka, USER, app.all_but(case.operation, case.kind, f"{app.name}-*")):
        with at_work(app) as outcomes:
            wait_for(lambda: outcomes, SOON_S, f"{case} ends")
        lacking = Right(case.operation, case.kind, f"{app.name}-*")
        with granted(kafka, USER, [lacking]), at_work(app) as healed:
            wait_for(lambda: app.is_done() or healed, SOON_S, f"{case} is done once it may")
    assert healed[0].error is None, healed
    return app, outcomes[0].error


def test_told_by_threads(guarded: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: what only the work itself shows ends the thread soon, with one error, and the next
    thread finds nothing in its way once it is granted."""
    with ThreadPoolExecutor(len(CASES)) as pool:
        found = {case: pool.submit(outcome_without, guarded, tmp_path, case) for case in CASES}
    for case, future in found.items():
        app, error = future.result()
        told = str(error)
        assert f"User:bob lacks {case.told.format(app.name)}" in told, case
        assert command(case.operation.capitalize(), case.command.format(app.name)) in told, case


def test_what_is_done_with_cannot_be_deleted(
    guarded: EmbeddedKafka, tmp_path: Path, caplog: Any
) -> None:
    """Goal: the application works, and says once for each topic what it lacks."""
    app = Counting(guarded, tmp_path)
    app.write()
    said = f"User:bob lacks DELETE on topic {app.name}-counts-repartition."
    with granted(guarded, USER, app.all_but("DELETE", "TOPIC", f"{app.name}-*")):
        with at_work(app) as outcomes:
            wait_for(lambda: said in caplog.text, SOON_S, "it is said")
            app.write()
            wait_for(app.is_done, SOON_S, "it works")
        assert outcomes[0].error is None
    assert caplog.text.count(said) == 1
