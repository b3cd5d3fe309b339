"""Whether the installed kafka-python has what a group member needs of it, and how it is told."""

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
from millstream.kafka import kafka_python_parts
from millstream.kafka.kafka_python_parts import (
    PARTS,
    SUPPORTED,
    Part,
    check_kafka_python,
    problems,
)
from millstream.kafka.member.group_member import Failed, GroupMember

PROJECT = Path(__file__).parents[4] / "pyproject.toml"


def problems_with(**replaced: Any) -> list[str]:
    """What is told when some classes are others."""

    def find(part: Part) -> Any:
        if part.name in replaced:
            return replaced[part.name]
        return getattr(import_module(part.module), part.name)

    return problems(find)


def changed(name: str, **members: Any) -> type:
    """A class of kafka-python with other members."""
    part = next(each for each in PARTS if each.name == name)
    return type(name, (getattr(import_module(part.module), name),), members)


def test_the_installed_release_has_everything() -> None:
    """Aim: nothing is asked for that the tested releases do not have."""
    assert problems() == []
    check_kafka_python()


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_class_that_is_missing_is_named(part: Part) -> None:
    """Aim: a class that was moved or renamed is told by its full name."""
    assert f"{part.path} is missing" in problems_with(**{part.name: None})


@pytest.mark.parametrize(
    ("part", "members", "told"),
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
            "kafka.net.manager.KafkaConnectionManager.wait_for is no coroutine function",
        ),
        (
            "Future",
            {"__init__": lambda self, loop: None},
            "kafka.future.Future is not made with ()",
        ),
    ],
)
def test_a_method_of_another_form_is_named(
    part: str, members: Mapping[str, Any], told: str
) -> None:
    """Aim: other parameters, in another order, or another kind of function would fail later."""
    assert problems_with(**{part: changed(part, **members)}) == [told]


def test_a_method_and_a_field_that_are_missing_are_named() -> None:
    """Aim: what a class no longer has is told by its name."""
    told = problems_with(SyncGroupRequest=object, Future=object)
    assert "kafka.protocol.consumer.SyncGroupRequest has no protocol_name" in told
    assert "kafka.future.Future has no add_both" in told


def test_an_attribute_that_objects_lack_is_named() -> None:
    """Aim: what only objects have is looked for on objects."""

    def without_value(self: Any) -> None:
        self.is_done, self.exception = False, None

    class Bare:
        __init__ = without_value
        add_both = add_errback = lambda self, f: None
        success = lambda self, value: None  # noqa: E731
        failure = lambda self, e: None  # noqa: E731

    assert problems_with(Future=Bare) == ["kafka.future.Future has no value"]


@pytest.mark.parametrize("version", ["2.3.1", "3.0.1", "4.0.0"])
def test_a_version_out_of_bounds_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Aim: a release may keep its names and behave otherwise; the error says which ones work."""
    monkeypatch.setattr(kafka_python_parts, "installed_version", version)
    with pytest.raises(ConfigError, match=f"kafka-python {version} .*{re.escape(SUPPORTED)}"):
        check_kafka_python()


def test_the_project_asks_for_the_versions_that_are_supported() -> None:
    """Aim: the installer and the check agree."""
    needed = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    assert SUPPORTED.replace(" ", "") in needed


def test_a_member_fails_before_it_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aim: a member on a client that misses something never takes part in a rebalance."""
    monkeypatch.setattr(kafka_python_parts, "installed_version", "4.0.0")
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
    assert "kafka-python 4.0.0 cannot be used" in str(event.error)
    member.close(leave_group=False, timeout_ms=10_000)


def test_the_doctor_tells_what_is_missing() -> None:
    """Aim: the package can be imported beside a kafka-python that lacks a class, to say so."""
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
        r"MISSING kafka-python \S+ cannot be used: \S+\.WakeupNotifier is missing", done.stdout
    )
