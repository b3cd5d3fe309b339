"""The local session of a process where the machine refuses what it needs."""

from __future__ import annotations

import threading

import pytest

from millstream.errors import SparkError
from millstream.spark.sessions import local_session as local_session_module
from millstream.spark.sessions.local_session import LocalSession


def test_a_session_without_a_thread_to_start_it_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hunts an application that waits for ever for a start that nobody makes."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    local = LocalSession(1, None)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert local.join("user", "shop", 1)
    with pytest.raises(SparkError, match="can't start new thread"):
        local.wait_started("user", lambda: False)
    assert local.is_over
    assert not local.join("another", "shop", 1)


def test_a_session_whose_stop_fails_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hunts a next session that waits for ever for the end of this one."""

    def fail() -> None:
        raise OSError("no process can be looked at")

    monkeypatch.setattr(local_session_module, "start_local", lambda *_: None)
    monkeypatch.setattr(local_session_module, "_forget_ended_jvm", fail)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    local = LocalSession(1, None)
    assert local.join("user", "shop", 1)
    assert local.wait_over(30)
