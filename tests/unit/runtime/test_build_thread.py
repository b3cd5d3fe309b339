"""A stream thread releases everything that it acquires, however it ends."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any, Literal
from unittest.mock import Mock

import pytest

from millstream.clock import SystemClock
from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError
from millstream.runtime.build_thread import build_thread
from millstream.runtime.client_process import ThreadIdentity, WorkerHost
from millstream.runtime.loop.stream_thread import StreamThread
from millstream.runtime.task_management.restore_reports import RestoreReportOptions
from millstream.runtime.thread_control import ClientJoined
from millstream.serdes import STRING
from millstream.state.directories.state_directory import StateDirectory
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.materialized import Materialized

OURS, THEIRS = uuid.UUID(int=1), uuid.UUID(int=2)


def build(
    state_dir: Path,
    driver: uuid.UUID,
    *,
    kind: Literal["rocksdb", "in_memory"] = "rocksdb",
    control: Any = None,
    host: WorkerHost | None = None,
    **settings: Any,
) -> Any:
    """Build a thread with a count; nothing listens at its broker's address."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=STRING, value=STRING).group_by_key()
    grouped.count(store=Materialized("counts", kind=kind, key=STRING))
    config = StreamsConfig(
        application_id="app", bootstrap_servers="127.0.0.1:1", state_dir=str(state_dir), **settings
    )
    identity = ThreadIdentity("app-StreamThread-1", 1, driver)
    return build_thread(
        builder.build(),
        config,
        identity,
        control or Mock(lost=True),
        RestoreReportOptions(),
        host=host,
    )


def client_of(state_dir: Path, driver: uuid.UUID, host: str, **settings: Any) -> ClientJoined:
    """Return the client of a thread, as reported by the thread."""
    control = Mock(lost=True)
    build(state_dir, driver, control=control, host=WorkerHost(host), **settings).run()
    (client,) = (
        call.args[0]
        for call in control.report.call_args_list
        if isinstance(call.args[0], ClientJoined)
    )
    assert isinstance(client, ClientJoined)
    return client


def free_folder(state_dir: Path) -> str:
    """Return the first folder that a new client can lock."""
    directory = StateDirectory.of_client(state_dir, "app", uuid.uuid4(), SystemClock())
    directory.release()
    return directory.path.name


def test_thread_locks_the_folder_of_its_client_until_it_ends(tmp_path: Path) -> None:
    """The driver is lost at once, so each thread ends as soon as it runs."""
    threads: list[StreamThread] = [build(tmp_path, each) for each in (OURS, OURS, THEIRS)]
    assert free_folder(tmp_path) == "client-3"
    for thread, free in zip(threads, ("client-3", "app", "app"), strict=True):
        thread.run()
        assert free_folder(tmp_path) == free


def test_threads_of_a_driver_on_one_host_are_one_client(tmp_path: Path) -> None:
    """The threads on two hosts are two clients, and those of another driver a third one."""
    one, two = tmp_path / "one", tmp_path / "two"
    ours = client_of(one, OURS, "one")
    assert ours.folder == str(one / "app")
    assert client_of(one, OURS, "one") == ours
    elsewhere = client_of(two, OURS, "two")
    assert elsewhere.folder == str(two / "app")
    thread: StreamThread = build(one, OURS)
    theirs = client_of(one, THEIRS, "one")
    thread.run()
    assert theirs.folder == str(one / "app" / "client-2")
    assert len({each.process_id for each in (ours, elsewhere, theirs)}) == 3


def test_a_client_without_state_on_disk_is_a_driver_on_a_host(tmp_path: Path) -> None:
    clients = [
        client_of(tmp_path, driver, host, kind="in_memory")
        for driver, host in ((OURS, "one"), (OURS, "one"), (OURS, "two"), (THEIRS, "one"))
    ]
    assert [each.folder for each in clients] == [None] * 4
    assert clients[0] == clients[1]
    assert len({each.process_id for each in clients}) == 3


def test_thread_that_cannot_be_built_releases_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        build(tmp_path, OURS, producer={"compression.type": "unknown"})
    assert free_folder(tmp_path) == "app"


@pytest.mark.parametrize(
    ("setting", "remains"), [({}, True), ({"state_cleanup_dir_max_age_ms": 60_000}, False)]
)
def test_old_state_is_deleted_at_the_start_on_request(
    tmp_path: Path, setting: dict[str, Any], remains: bool
) -> None:
    store = tmp_path / "app" / "0_0" / "rocksdb" / "counts"
    store.mkdir(parents=True)
    for path in (store, *store.parents[:2]):
        os.utime(path, (1_000, 1_000))
    thread: StreamThread = build(tmp_path, OURS, **setting)
    assert store.exists() is remains
    thread.run()


def test_without_a_store_on_disk_there_is_no_folder(tmp_path: Path) -> None:
    thread: StreamThread = build(tmp_path, OURS, kind="in_memory")
    thread.run()
    assert list(tmp_path.iterdir()) == []
