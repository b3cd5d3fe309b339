"""The group metadata that a transaction is committed with."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from millstream.clock import SystemClock
from millstream.errors import IllegalStateError, RebalanceInProgressError
from millstream.kafka.membership.group_member import GroupMember


class _Membership:
    """A membership with the coordinator state that a commit reads. The state may change at any
    time."""

    def __init__(self, generation: int, member_id: str) -> None:
        self.coordinator = SimpleNamespace(generation_id=generation, member_id=member_id)
        self.blocks = 0

    def block_joins(self) -> None:
        self.blocks += 1

    def unblock_joins(self) -> None:
        self.blocks -= 1


def _member(membership: _Membership | None, monkeypatch: pytest.MonkeyPatch) -> GroupMember:
    member = GroupMember(
        {"group_instance_id": "host-1"},
        group_id="shop",
        topics=["clicks"],
        pattern=None,
        assignor=None,  # type: ignore[arg-type]
        client_id="one",
        clock=SystemClock(),
    )
    monkeypatch.setattr(member, "_membership", membership)
    return member


def test_the_metadata_is_that_of_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    membership = _Membership(7, "one-1")
    with _member(membership, monkeypatch).without_rejoin() as metadata:
        assert membership.blocks == 1
        assert metadata == (7, "shop", "one-1", "host-1")
    assert membership.blocks == 0


@pytest.mark.parametrize(("generation", "member_id"), [(-1, ""), (-1, "one-1"), (7, "")])
def test_a_removed_member_cannot_commit(
    generation: int, member_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker rejects its transactions, whichever partitions it has."""
    membership = _Membership(generation, member_id)
    with (
        pytest.raises(RebalanceInProgressError, match="'shop' has removed this member"),
        _member(membership, monkeypatch).without_rejoin(),
    ):
        pass
    assert membership.blocks == 0


def test_a_member_cannot_commit_before_its_first_join(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(IllegalStateError, match="has not joined yet"),
        _member(None, monkeypatch).without_rejoin(),
    ):
        pass
