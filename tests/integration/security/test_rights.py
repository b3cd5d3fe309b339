"""A user without rights on a broker with ACLs: each missing right yields one error that names
it, and the command to grant it; once it is granted the application works."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.broker.access import AUTHORIZER, Permission, granted
from support.broker.topics import fill, latest, unique
from support.running.thread_run import ThreadRun
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
from millstream.serdes import LONG, STRING
from millstream.testing import EmbeddedKafka

USER = "bob"
#: A thread must give up within this time; it takes about two seconds.
SOON_S = 30.0


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedKafka]:
    """A broker that checks bob's rights."""
    with EmbeddedKafka(
        security_protocol="SASL_PLAINTEXT", users={USER: "secret"}, properties=AUTHORIZER
    ) as kafka:
        yield kafka


class Counting:
    """An application with all kinds of topics, and all rights that it needs."""

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

    def needed(self) -> list[Permission]:
        """The list in docs/operations/secured-clusters.md."""
        own = ("READ", "WRITE", "CREATE", "DELETE")
        rights = [
            Permission("READ", "TOPIC", self.source),
            Permission("WRITE", "TOPIC", self.sink),
            Permission("READ", "GROUP", self.name),
            *(Permission(operation, "TOPIC", f"{self.name}-*") for operation in own),
        ]
        if self.is_exact_once:
            rights.append(Permission("WRITE", "TRANSACTIONAL_ID", f"{self.name}-*"))
        return rights

    def all_but(self, operation: str, kind: str, of: str) -> list[Permission]:
        lacking = Permission(operation, kind, of)
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

    def run(self) -> ThreadRun:
        return ThreadRun(self.topology(), self.config, driver=uuid.uuid4(), may_fail=True)


def command(operation: str, resource: str) -> str:
    return (
        "kafka-acls --bootstrap-server ... --add --allow-principal 'User:bob' "
        f"--operation {operation} {resource}"
    )


@pytest.mark.parametrize(
    ("operation", "kind", "place"),
    [("READ", "TOPIC", "from-{}"), ("WRITE", "TOPIC", "to-{}"), ("READ", "GROUP", "{}")],
)
def test_missing_rights_are_reported_by_start(
    guarded: EmbeddedKafka, tmp_path: Path, operation: str, kind: str, place: str
) -> None:
    """Goal: reported before Spark is started; with the right to describe the topic or group, and
    without."""
    app = Counting(guarded, tmp_path)
    name = place.format(app.name)
    rights = app.all_but(operation, kind, name)
    sees = Permission("DESCRIBE", kind, name)
    for granted_now in (rights, [*rights, sees]):
        with (
            granted(guarded, USER, granted_now),
            pytest.raises(AccessDeniedError) as raised,
        ):
            KafkaStreams(app.topology(), app.config).start()
        message = str(raised.value)
        assert f"User:bob lacks {operation} on {kind.lower()} {name}." in message
        assert command(operation.capitalize(), f"--{kind.lower()} '{name}'") in message


def test_all_missing_rights_are_reported_together(guarded: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: users do not have to discover missing rights one by one."""
    app = Counting(guarded, tmp_path)
    seen = [Permission("DESCRIBE", "TOPIC", topic) for topic in (app.source, app.sink)]
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
    """A right without which a thread fails, and its error."""

    guarantee: str
    operation: str
    kind: str
    lacks: str
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
    """The error of a thread that lacks one right; once the right is granted, everything is
    processed."""
    app = Counting(kafka, folder, case.guarantee)
    app.write()
    with granted(kafka, USER, app.all_but(case.operation, case.kind, f"{app.name}-*")):
        with app.run() as run:
            wait_for(lambda: run.outcome, SOON_S, f"{case} fails")
        lacking = Permission(case.operation, case.kind, f"{app.name}-*")
        with granted(kafka, USER, [lacking]), app.run() as run_with_right:
            wait_for(
                lambda: app.is_done() or run_with_right.outcome,
                SOON_S,
                f"{case} succeeds with the right",
            )
    assert run_with_right.outcome is not None
    assert run_with_right.outcome.error is None, run_with_right.outcome
    assert run.outcome is not None
    return app, run.outcome.error


@pytest.mark.extended
def test_missing_rights_are_reported_by_threads(guarded: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: a right whose absence shows only during the work fails the thread soon, with one
    error; once it is granted, the next thread works."""
    with ThreadPoolExecutor(len(CASES)) as pool:
        found = {case: pool.submit(outcome_without, guarded, tmp_path, case) for case in CASES}
    for case, future in found.items():
        app, error = future.result()
        message = str(error)
        assert f"User:bob lacks {case.lacks.format(app.name)}" in message, case
        assert command(case.operation.capitalize(), case.command.format(app.name)) in message, case


def test_missing_right_to_delete_processed_records(
    guarded: EmbeddedKafka, tmp_path: Path, caplog: Any
) -> None:
    """Goal: the application works, and logs the missing right once per topic."""
    app = Counting(guarded, tmp_path)
    app.write()
    warning = f"User:bob lacks DELETE on topic {app.name}-counts-repartition."
    with granted(guarded, USER, app.all_but("DELETE", "TOPIC", f"{app.name}-*")):
        with app.run() as run:
            wait_for(lambda: warning in caplog.text, SOON_S, "the warning is logged")
            app.write()
            wait_for(app.is_done, SOON_S, "everything is processed")
        assert run.failure is None
    assert caplog.text.count(warning) == 1
