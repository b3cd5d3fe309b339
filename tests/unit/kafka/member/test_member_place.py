"""The place in the group that a transaction is committed with."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from millstream.clock import SystemClock
from millstream.errors import IllegalStateError, RebalanceInProgressError
from millstream.kafka.member.group_member import GroupMember


class _Life:
    """A membership, as far as a commit sees it: what the broker knows of it may change any time."""

    def __init__(self, generation: int, member_id: str) -> None:
        self.coordinator = SimpleNamespace(generation_id=generation, member_id=member_id)
        self.held = 0

    def hold(self) -> None:
        self.held += 1

    def release(self) -> None:
        self.held -= 1


def _member(life: _Life | None, monkeypatch: pytest.MonkeyPatch) -> GroupMember:
    member = GroupMember(
        {"group_instance_id": "host-1"},
        group_id="shop",
        topics=["clicks"],
        pattern=None,
        assignor=None,  # type: ignore[arg-type]
        client_id="one",
        clock=SystemClock(),
    )
    monkeypatch.setattr(member, "_life", life)
    return member


def test_the_place_is_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    life = _Life(7, "one-1")
    with _member(life, monkeypatch).without_rejoin() as place:
        assert life.held == 1
        assert place == (7, "shop", "one-1", "host-1")
    assert life.held == 0


@pytest.mark.parametrize(("generation", "member_id"), [(-1, ""), (-1, "one-1"), (7, "")])
def test_without_a_place_nothing_is_committed(
    generation: int, member_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker takes a transaction of nobody, whoever has the partitions."""
    life = _Life(generation, member_id)
    with (
        pytest.raises(RebalanceInProgressError, match="'shop' has gone on without this member"),
        _member(life, monkeypatch).without_rejoin(),
    ):
        pass
    assert life.held == 0


def test_before_the_first_join(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(IllegalStateError, match="has not joined yet"),
        _member(None, monkeypatch).without_rejoin(),
    ):
        pass
