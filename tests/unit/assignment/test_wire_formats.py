"""The bytes of the assignment protocol equal those of Kafka Streams 4.3.1.

The expected bytes were printed by the encoders of kafka-streams 4.3.1, see the file.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from pathlib import Path
from typing import Final

import pytest

from millstream.assignment.wire_format import (
    LATEST_OFFSET,
    AssignmentInfo,
    AssignorError,
    HostInfo,
    SubscriptionInfo,
)
from millstream.errors import TaskAssignmentError
from millstream.record import TaskId, TopicPartition

_GOLDEN = json.loads((Path(__file__).parent / "kafka_streams_4_3_1.json").read_text())
_PROCESS: Final = uuid.UUID("123e4567-e89b-12d3-a456-426614174000")
_FULL_SUBSCRIPTION: Final = SubscriptionInfo(
    _PROCESS,
    "localhost:8080",
    {TaskId(0, 0): LATEST_OFFSET, TaskId(0, 1): 10, TaskId(1, 2): 2**63 - 1},
    unique_field=3,
    client_tags={"zone": "eu-1", "cluster": "k1"},
)
_FULL_ASSIGNMENT: Final = AssignmentInfo(
    active_tasks=(TaskId(0, 0), TaskId(0, 0), TaskId(1, 2)),
    standby_tasks={
        TaskId(1, 2): frozenset(),
        TaskId(0, 1): frozenset({TopicPartition("other", 1), TopicPartition("in", 1)}),
    },
    partitions_by_host={
        HostInfo("other", 9090): frozenset({TopicPartition("second", 2)}),
        HostInfo("localhost", 8080): frozenset({TopicPartition("in", 0), TopicPartition("in", 1)}),
    },
    standby_partitions_by_host={
        HostInfo("other", 9090): frozenset({TopicPartition("in", 1)}),
    },
)


def _subscription(name: str) -> bytes:
    return bytes.fromhex(_GOLDEN["subscription"][name])


def _assignment(name: str) -> bytes:
    return bytes.fromhex(_GOLDEN["assignment"][name])


@pytest.mark.parametrize(
    ("name", "info"),
    [
        ("full, version 11", _FULL_SUBSCRIPTION),
        ("full, version 10", dataclasses.replace(_FULL_SUBSCRIPTION, version=10, client_tags={})),
        ("full, version 9", dataclasses.replace(_FULL_SUBSCRIPTION, version=9, client_tags={})),
        ("full, version 8", dataclasses.replace(_FULL_SUBSCRIPTION, version=8, client_tags={})),
        (
            "full, version 7",
            dataclasses.replace(_FULL_SUBSCRIPTION, version=7, client_tags={}, unique_field=0),
        ),
        ("empty", SubscriptionInfo(_PROCESS)),
        ("latest version 13", SubscriptionInfo(_PROCESS, latest_version=13)),
        (
            "shutdown requested",
            SubscriptionInfo(
                _PROCESS, unique_field=-1, error_code=AssignorError.SHUTDOWN_REQUESTED
            ),
        ),
    ],
)
def test_subscription_bytes_equal_those_of_java(name: str, info: SubscriptionInfo) -> None:
    """Groups can have Java and Python members."""
    assert info.encode() == _subscription(name)
    assert SubscriptionInfo.decode(_subscription(name)) == info


def test_fields_of_newer_versions_are_omitted() -> None:
    """A downgrade only needs to set the version."""
    old = dataclasses.replace(_FULL_SUBSCRIPTION, version=7)
    assert old.encode() == _subscription("full, version 7")


def test_the_unique_field_wraps_around() -> None:
    """A thread may rejoin more often than fits into a byte."""
    data = SubscriptionInfo(_PROCESS, unique_field=300).encode()
    assert SubscriptionInfo.decode(data).unique_field == 300 - 256


def test_only_the_versions_of_a_future_subscription_are_read() -> None:
    """A newer member can join. The fields after its versions are unknown, or missing."""
    data = bytes.fromhex("0000000c0000000d") + b"\xff" * 5
    info = SubscriptionInfo.decode(data)
    assert (info.version, info.latest_version, info.is_future) == (12, 13, True)


@pytest.mark.parametrize(
    ("name", "info"),
    [
        ("full, version 11", _FULL_ASSIGNMENT),
        ("full, version 10", dataclasses.replace(_FULL_ASSIGNMENT, version=10)),
        ("full, version 9", dataclasses.replace(_FULL_ASSIGNMENT, version=9)),
        ("full, version 8", dataclasses.replace(_FULL_ASSIGNMENT, version=8)),
        ("full, version 7", dataclasses.replace(_FULL_ASSIGNMENT, version=7)),
        ("rebalance now", AssignmentInfo((TaskId(0, 0),), next_rebalance_ms=0)),
        (
            "rebalance later",
            AssignmentInfo((TaskId(0, 0),), next_rebalance_ms=1_700_000_000_123),
        ),
        *[(f"error {error}", AssignmentInfo(error_code=error)) for error in AssignorError],
        (
            "not ASCII",
            AssignmentInfo(
                partitions_by_host={HostInfo("hé", 1): frozenset({TopicPartition("t€", 0)})}
            ),
        ),
    ],
)
def test_assignment_bytes_equal_those_of_java(name: str, info: AssignmentInfo) -> None:
    """Leaders and members can be Java or Python."""
    assert info.encode() == _assignment(name)
    assert AssignmentInfo.decode(_assignment(name)) == info


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_subscription("named topology"), "named topology"),
        (_subscription("version 6"), "version 6, but the oldest supported is 7"),
        (_subscription("full, version 11")[:-1], "a field at position"),
        (b"", "a field at position"),
        (
            b"\x00\x00\x00\x0b\x00\x00\x00\x0b" + b"\x00" * 16 + b"\x7f\xff\xff\xff",
            "a field at position",
        ),
    ],
)
def test_unreadable_subscriptions_are_rejected(data: bytes, message: str) -> None:
    with pytest.raises(TaskAssignmentError, match=message):
        SubscriptionInfo.decode(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_assignment("named topology"), "named topology"),
        (_assignment("version 6"), "version 6, but only versions 7 to 11"),
        (bytes.fromhex("0000000c0000000c"), "version 12"),
        (_assignment("full, version 11")[:-1], "a field at position"),
        (b"", "a field at position"),
    ],
)
def test_unreadable_assignments_are_rejected(data: bytes, message: str) -> None:
    with pytest.raises(TaskAssignmentError, match=message):
        AssignmentInfo.decode(data)


def test_unsupported_versions_are_not_written() -> None:
    with pytest.raises(TaskAssignmentError, match="version 12"):
        SubscriptionInfo(_PROCESS, version=12).encode()
    with pytest.raises(TaskAssignmentError, match="version 6"):
        AssignmentInfo(version=6).encode()


@pytest.mark.parametrize(
    ("end_point", "expected"),
    [
        ("", None),
        ("  ", None),
        ("host:80", HostInfo("host", 80)),
        ("http://host.example-1.com:8080", HostInfo("host.example-1.com", 8080)),
        ("[::1]:9092", HostInfo("::1", 9092)),
    ],
)
def test_endpoints_are_parsed_as_in_java(end_point: str, expected: HostInfo | None) -> None:
    assert HostInfo.parse(end_point) == expected


@pytest.mark.parametrize("end_point", ["host", "host:", ":80", "host:port", "a b:1"])
def test_invalid_endpoints_are_rejected(end_point: str) -> None:
    with pytest.raises(TaskAssignmentError, match=r"application\.server"):
        HostInfo.parse(end_point)
