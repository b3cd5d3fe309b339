"""The compatibility check of the installed kafka-python, and its error messages."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from support.broker.group_members import Assignor

from millstream.clock import SystemClock
from millstream.errors import ConfigError
from millstream.kafka import kafka_python_compat
from millstream.kafka.kafka_python_compat import (
    PRIVATE_CLASSES,
    SUPPORTED,
    PrivateClass,
    check_kafka_python,
    compatibility_problems,
)
from millstream.kafka.membership.group_member import GroupMember
from millstream.kafka.membership.member_events import Failed

PROJECT = Path(__file__).parents[4] / "pyproject.toml"


def problems_with(**replaced: Any) -> list[str]:
    """The problems reported with some classes replaced."""

    def find(part: PrivateClass) -> Any:
        if part.name in replaced:
            return replaced[part.name]
        return getattr(import_module(part.module), part.name)

    return compatibility_problems(find)


def changed_class(name: str, **members: Any) -> type:
    """A class of kafka-python with other members."""
    part = next(each for each in PRIVATE_CLASSES if each.name == name)
    return type(name, (getattr(import_module(part.module), name),), members)


def test_the_installed_release_is_compatible() -> None:
    """The check requires nothing that tested releases lack."""
    assert compatibility_problems() == []
    check_kafka_python()


@pytest.mark.parametrize("part", PRIVATE_CLASSES, ids=lambda part: part.name)
def test_a_missing_class_is_named(part: PrivateClass) -> None:
    """By its full name, if it was moved or renamed."""
    assert f"{part.path} is missing" in problems_with(**{part.name: None})


@pytest.mark.parametrize(
    ("part", "members", "expected"),
    [
        (
            "WakeupNotifier",
            {"notify": lambda self, reason: None},
            "kafka.net.wakeup_notifier.WakeupNotifier.notify does not take ()",
        ),
        (
            "KafkaConnectionManager",
            {"send": lambda self, node_id, request: None},
            "kafka.net.manager.KafkaConnectionManager.send does not take "
            "(request, node_id, request_timeout_ms)",
        ),
        (
            "KafkaConnectionManager",
            {"wait_for": lambda self, future, timeout_ms: None},
            "kafka.net.manager.KafkaConnectionManager.wait_for is not a coroutine function",
        ),
        (
            "Future",
            {"__init__": lambda self, loop: None},
            "kafka.future.Future does not take ()",
        ),
    ],
)
def test_a_method_with_another_signature_is_named(
    part: str, members: Mapping[str, Any], expected: str
) -> None:
    """Other parameters, another order, or another kind of function would only fail later."""
    assert problems_with(**{part: changed_class(part, **members)}) == [expected]


def test_missing_methods_and_fields_are_named() -> None:
    problems = problems_with(SyncGroupRequest=object, Future=object)
    assert "kafka.protocol.consumer.SyncGroupRequest has no protocol_name" in problems
    assert "kafka.future.Future has no add_both" in problems


def test_a_missing_instance_attribute_is_named() -> None:
    """Attributes set by `__init__` are checked on instances."""

    def without_value(self: Any) -> None:
        self.is_done, self.exception = False, None

    class Bare:
        __init__ = without_value
        add_both = add_errback = lambda self, f: None
        success = lambda self, value: None  # noqa: E731
        failure = lambda self, e: None  # noqa: E731

    assert problems_with(Future=Bare) == ["kafka.future.Future has no value"]


@pytest.mark.parametrize("version", ["2.3.1", "3.0.1", "4.0.0"])
def test_an_unsupported_version_is_rejected(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """A release may keep its names but change its behavior. The error contains the supported
    versions."""
    monkeypatch.setattr(kafka_python_compat, "installed_version", version)
    with pytest.raises(ConfigError, match=f"kafka-python {version} .*{re.escape(SUPPORTED)}"):
        check_kafka_python()


def test_the_project_depends_on_the_supported_versions() -> None:
    needed = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    assert SUPPORTED.replace(" ", "") in needed


def test_a_member_fails_before_it_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member with an incompatible client never takes part in a rebalance."""
    monkeypatch.setattr(kafka_python_compat, "installed_version", "4.0.0")
    member = GroupMember(
        {"bootstrap_servers": "127.0.0.1:1"},
        group_id="g",
        topics=["in"],
        pattern=None,
        assignor=Assignor({}),
        client_id="m",
        clock=SystemClock(),
    )
    member.start()
    event = member.next_event(10_000)
    assert isinstance(event, Failed)
    assert isinstance(event.error, ConfigError)
    assert "kafka-python 4.0.0 is not supported" in str(event.error)
    member.close(leave_group=False, timeout_ms=10_000)


def test_the_doctor_reports_a_missing_class() -> None:
    """The package can be imported with an incompatible kafka-python, so that the doctor can report
    it."""
    code = """
import kafka.net.wakeup_notifier
del kafka.net.wakeup_notifier.WakeupNotifier
import sys
from millstream.cli import main
sys.exit(main(["doctor"]))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert re.search(
        r"MISSING kafka-python \S+ is not supported: \S+\.WakeupNotifier is missing", done.stdout
    )
