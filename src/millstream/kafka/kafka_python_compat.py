"""The private classes of kafka-python in use, and a compatibility check.

Any release may rename these classes. A placeholder replaces a missing class, so the package can
still be imported and report the problem: `check_kafka_python` does so before a member starts, and
`millstream doctor` on demand.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from kafka import __version__ as installed_version

from millstream.errors import ConfigError

#: The oldest supported and the first untested release: the bounds in pyproject.toml.
OLDEST: Final = (3, 0, 4)
BELOW: Final = (4,)
SUPPORTED: Final = "kafka-python >=3.0.4, <4"


@dataclass(frozen=True, slots=True)
class PrivateClass:
    """A private class of kafka-python."""

    module: str
    name: str
    #: The first parameters of the constructor; None if it is not called.
    takes: tuple[str, ...] | None = None
    #: The first parameters of each method after `self`; all others must be optional. A name that
    #: ends with `()` denotes a coroutine function.
    methods: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Attributes of the class, including properties and fields of requests.
    members: tuple[str, ...] = ()
    #: Attributes that the constructor sets, checked on objects of `_instances`.
    attributes: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


_GROUP = ("group_id", "member_id", "group_instance_id")

PRIVATE_CLASSES: Final = (
    PrivateClass(
        "kafka.coordinator.base",
        "BaseCoordinator",
        takes=("client",),
        methods={
            "coordinator_dead": ("error",),
            "coordinator_unknown": (),
            "ensure_active_group_async()": (),
            "ensure_coordinator_ready_async()": ("timeout_ms",),
            "generation_if_stable": (),
            "group_protocols": (),
            "need_rejoin": (),
            "poll_heartbeat": (),
            "protocol_type": (),
            "request_rejoin": (),
            "reset_generation": ("member_id",),
            "stable": (),
            "_close_heartbeat": (),
            "_do_join_and_sync_async()": (),
            "_handle_heartbeat_response": ("response", "send_time"),
            "_maybe_start_heartbeat_loop": (),
            "_on_join_complete_async()": (
                *("generation", "member_id", "protocol", "member_assignment_bytes"),
            ),
            "_on_join_prepare_async()": ("generation", "member_id", "timeout_ms"),
            "_perform_assignment": ("leader_id", "protocol", "members"),
            "_process_join_group_response": ("response", "send_time"),
            "_process_sync_group_response": ("response", "send_time"),
        },
        members=("group_id", "group_instance_id"),
        attributes=("config", "coordinator_id", "rejoining", "state", "_generation", "_lock"),
    ),
    PrivateClass("kafka.coordinator.base", "MemberState", members=("REBALANCING",)),
    PrivateClass(
        "kafka.coordinator.base",
        "Generation",
        methods={"has_member_id": (), "is_lost": ()},
        attributes=("generation_id", "member_id", "protocol"),
    ),
    PrivateClass(
        "kafka.net.compat",
        "KafkaNetClient",
        takes=(),
        methods={"close": (), "connected": ("node_id",)},
        attributes=("_manager",),
    ),
    PrivateClass(
        "kafka.net.manager",
        "KafkaConnectionManager",
        methods={
            "bootstrap_async": ("timeout_ms", "refresh"),
            "call_soon": ("coro",),
            "close": (),
            "get_connection": ("node_id",),
            "send": ("request", "node_id", "request_timeout_ms"),
            "wait_for()": ("future", "timeout_ms"),
            "_build_transport()": ("node",),
        },
        members=("broker_version",),
        attributes=("cluster", "_net"),
    ),
    PrivateClass("kafka.net.connection", "KafkaConnection", members=("init_future",)),
    PrivateClass("kafka.net.transport", "KafkaTCPTransport", methods={"_sock_recv": ()}),
    PrivateClass("kafka.net.transport", "KafkaSSLTransport", methods={"_sock_recv": ()}),
    PrivateClass(
        "kafka.net.selector",
        "NetworkSelector",
        methods={
            "call_soon_threadsafe": ("callback",),
            "sleep": ("delay",),
            "start": (),
            "stop": ("timeout_ms",),
        },
        attributes=("_exception", "_io_thread"),
    ),
    PrivateClass(
        "kafka.net.wakeup_notifier",
        "WakeupNotifier",
        takes=("net",),
        methods={"__call__()": ("timeout_secs",), "notify": ()},
    ),
    PrivateClass(
        "kafka.cluster",
        "ClusterMetadata",
        methods={"broker_metadata": ("broker_id",), "brokers": ()},
        attributes=("_last_successful_refresh_ms",),
    ),
    PrivateClass(
        "kafka.future",
        "Future",
        takes=(),
        methods={
            "add_both": ("f",),
            "add_errback": ("f",),
            "failure": ("e",),
            "success": ("value",),
        },
        attributes=("exception", "is_done", "value"),
    ),
    PrivateClass(
        "kafka.net.sasl.oauth",
        "AbstractTokenProvider",
        takes=(),
        methods={"token": (), "extensions": ()},
    ),
    PrivateClass(
        "kafka.protocol.consumer",
        "JoinGroupRequest",
        members=(
            *_GROUP,
            *("session_timeout_ms", "rebalance_timeout_ms", "protocol_type", "protocols"),
            *("reason", "max_version"),
        ),
    ),
    PrivateClass(
        "kafka.protocol.consumer",
        "SyncGroupRequest",
        members=(
            *_GROUP,
            *("generation_id", "protocol_type", "protocol_name", "assignments", "max_version"),
        ),
    ),
    PrivateClass("kafka.protocol.consumer", "HeartbeatRequest", members=(*_GROUP, "generation_id")),
    PrivateClass(
        "kafka.protocol.consumer",
        "LeaveGroupRequest",
        members=("group_id", "member_id", "members", "MemberIdentity"),
    ),
    PrivateClass(
        "kafka.protocol.consumer",
        "OffsetCommitRequest",
        members=(
            *_GROUP,
            *("generation_id_or_member_epoch", "topics", "max_version", "OffsetCommitRequestTopic"),
        ),
    ),
    PrivateClass(
        "kafka.protocol.consumer",
        "OffsetFetchRequest",
        members=(
            *("group_id", "require_stable", "topics", "groups", "max_version"),
            *("OffsetFetchRequestTopic", "OffsetFetchRequestGroup"),
        ),
    ),
    PrivateClass(
        "kafka.protocol.metadata",
        "MetadataRequest",
        members=(
            *("topics", "allow_auto_topic_creation", "ALL_TOPICS", "MetadataRequestTopic"),
            *("include_cluster_authorized_operations", "include_topic_authorized_operations"),
        ),
    ),
)


class _MissingClass:
    """Placeholder for a class that the installed release lacks. Never instantiated."""


def private_class(name: str) -> Any:
    """Return the class with this name in `PRIVATE_CLASSES`, or a placeholder."""
    found = _find(next(each for each in PRIVATE_CLASSES if each.name == name))
    return _MissingClass if found is None else found


def check_kafka_python() -> None:
    """Raise ConfigError with the problems if kafka-python is incompatible."""
    missing = compatibility_problems()
    if missing:
        raise ConfigError(
            f"kafka-python {installed_version} is not supported: {'; '.join(missing)}. Install "
            f"{SUPPORTED} wherever stream threads run."
        )


def compatibility_problems(find: Callable[[PrivateClass], Any] | None = None) -> list[str]:
    """List the incompatibilities of the installed kafka-python.

    `find` returns kafka-python's class for a `PrivateClass`; None if the class is missing.
    """
    find = find or _find
    found = {each.name: find(each) for each in PRIVATE_CLASSES}
    problems = list(_version_problems())
    for each in PRIVATE_CLASSES:
        if found[each.name] is None:
            problems.append(f"{each.path} is missing")
        else:
            problems += (f"{each.path}{p}" for p in _class_problems(each, found[each.name]))
    if not problems:
        problems += _instance_problems(found)
    return problems


def _find(expected: PrivateClass) -> Any:
    try:
        return getattr(import_module(expected.module), expected.name, None)
    except ImportError:
        return None


def _version_problems() -> Iterator[str]:
    numbers = tuple(int(number) for number in re.findall(r"\d+", installed_version)[:3])
    if not OLDEST <= numbers < BELOW:
        yield "the version is not supported"


def _class_problems(expected: PrivateClass, found: Any) -> Iterator[str]:
    if expected.takes is not None and not _accepts(found, expected.takes):
        yield f" does not take ({', '.join(expected.takes)})"
    for written, parameters in expected.methods.items():
        name = written.removesuffix("()")
        method = getattr(found, name, None)
        if method is None:
            yield f" has no {name}"
        elif not _accepts(method, ("self", *parameters)):
            yield f".{name} does not take ({', '.join(parameters)})"
        elif written.endswith("()") and not inspect.iscoroutinefunction(method):
            yield f".{name} is not a coroutine function"
    for name in expected.members:
        if not hasattr(found, name):
            yield f" has no {name}"


def _accepts(call: Any, names: tuple[str, ...]) -> bool:
    """Whether `names` are the first positional parameters, and the rest are optional."""
    parameters = list(inspect.signature(call).parameters.values())
    rest = parameters[len(names) :]
    return tuple(each.name for each in parameters[: len(names)]) == names and all(
        each.default is not each.empty or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        for each in rest
    )


def _instance_problems(found: Mapping[str, Any]) -> Iterator[str]:
    """Check the attributes that the constructors set."""
    with contextlib.ExitStack() as done:
        try:
            instances = _instances(found, done)
        except Exception as error:
            yield f"its objects cannot be created: {type(error).__name__}: {error}"
            return
        for each in PRIVATE_CLASSES:
            for name in each.attributes:
                if not hasattr(instances[each.name], name):
                    yield f"{each.path} has no {name}"


def _instances(found: Mapping[str, Any], done: contextlib.ExitStack) -> dict[str, Any]:
    """Create an object of each class that has `attributes`.

    The objects are neither connected nor started.
    """
    client = found["KafkaNetClient"](bootstrap_servers="localhost:9092")
    done.callback(client.close)
    manager = client._manager
    coordinator = found["BaseCoordinator"]
    hooks = dict.fromkeys(coordinator.__abstractmethods__, lambda *_: None)
    probe = type("Probe", (coordinator,), hooks)(client)
    return {
        "BaseCoordinator": probe,
        "Generation": probe._generation,
        "KafkaNetClient": client,
        "KafkaConnectionManager": manager,
        "NetworkSelector": manager._net,
        "ClusterMetadata": manager.cluster,
        "Future": found["Future"](),
    }
