"""The local session of a process if the machine lacks resources."""

from __future__ import annotations

import threading

import pytest

from millstream.errors import SparkError
from millstream.spark.sessions import local_session as local_session_module
from millstream.spark.sessions.local_session import LocalSession


def test_a_session_without_a_start_thread_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Detects an application that waits forever for a start that never happens."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    local = LocalSession(1, None)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert local.add_user("user", "shop", 1)
    with pytest.raises(SparkError, match="can't start new thread"):
        local.wait_started("user", lambda: False)
    assert local.is_stopped
    assert not local.add_user("another", "shop", 1)


def test_a_session_has_ended_after_a_failed_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Detects a next session that waits forever for the end of this one."""

    def fail() -> None:
        raise OSError("processes cannot be listed")

    monkeypatch.setattr(local_session_module, "start_local", lambda *_: None)
    monkeypatch.setattr(local_session_module, "_discard_ended_jvm", fail)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    local = LocalSession(1, None)
    assert local.add_user("user", "shop", 1)
    assert local.wait_stopped(30)
