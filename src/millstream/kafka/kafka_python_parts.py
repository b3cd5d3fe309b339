"""What is needed of kafka-python beyond its public interface, and whether the installed one has it.

kafka-python keeps no promises about these parts: any release may rename them. `PARTS` lists all
that `kafka_python` uses of them. A part that is missing is replaced by a stand-in, so that the
package can be imported and say what is wrong; `check_kafka_python` does that before a member
starts, and `millstream doctor` for whoever asks.
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

#: The first release with which everything works, and the first that nobody has tried: the bounds
#: in pyproject.toml.
OLDEST: Final = (3, 0, 4)
BELOW: Final = (4,)
SUPPORTED: Final = "kafka-python >=3.0.4, <4"


@dataclass(frozen=True, slots=True)
class Part:
    """A class that is not public.

    Args:
        module: where it is.
        name: its name there.
        takes: the first parameters of its constructor; None if it is not called.
        methods: the first parameters of each method after `self`; what follows them must be
            optional. A name that ends with `()` is a coroutine function's.
        members: attributes of the class, properties and fields of requests among them.
        attributes: what an instance has from its making on, looked up by `_instances`.
    """

    module: str
    name: str
    takes: tuple[str, ...] | None = None
    methods: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Its full name."""
        return f"{self.module}.{self.name}"


_GROUP = ("group_id", "member_id", "group_instance_id")

PARTS: Final = (
    Part(
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
    Part("kafka.coordinator.base", "MemberState", members=("REBALANCING",)),
    Part(
        "kafka.coordinator.base",
        "Generation",
        methods={"has_member_id": (), "is_lost": ()},
        attributes=("generation_id", "member_id", "protocol"),
    ),
    Part(
        "kafka.net.compat",
        "KafkaNetClient",
        takes=(),
        methods={"close": (), "connected": ("node_id",)},
        attributes=("_manager",),
    ),
    Part(
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
    Part("kafka.net.connection", "KafkaConnection", members=("init_future",)),
    Part("kafka.net.transport", "KafkaTCPTransport", methods={"_sock_recv": ()}),
    Part("kafka.net.transport", "KafkaSSLTransport", methods={"_sock_recv": ()}),
    Part(
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
    Part(
        "kafka.net.wakeup_notifier",
        "WakeupNotifier",
        takes=("net",),
        methods={"__call__()": ("timeout_secs",), "notify": ()},
    ),
    Part(
        "kafka.cluster",
        "ClusterMetadata",
        methods={"broker_metadata": ("broker_id",), "brokers": ()},
        attributes=("_last_successful_refresh_ms",),
    ),
    Part(
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
    Part(
        "kafka.net.sasl.oauth",
        "AbstractTokenProvider",
        takes=(),
        methods={"token": (), "extensions": ()},
    ),
    Part(
        "kafka.protocol.consumer",
        "JoinGroupRequest",
        members=(
            *_GROUP,
            *("session_timeout_ms", "rebalance_timeout_ms", "protocol_type", "protocols"),
            *("reason", "max_version"),
        ),
    ),
    Part(
        "kafka.protocol.consumer",
        "SyncGroupRequest",
        members=(
            *_GROUP,
            *("generation_id", "protocol_type", "protocol_name", "assignments", "max_version"),
        ),
    ),
    Part("kafka.protocol.consumer", "HeartbeatRequest", members=(*_GROUP, "generation_id")),
    Part(
        "kafka.protocol.consumer",
        "LeaveGroupRequest",
        members=("group_id", "member_id", "members", "MemberIdentity"),
    ),
    Part(
        "kafka.protocol.consumer",
        "OffsetCommitRequest",
        members=(
            *_GROUP,
            *("generation_id_or_member_epoch", "topics", "max_version", "OffsetCommitRequestTopic"),
        ),
    ),
    Part(
        "kafka.protocol.consumer",
        "OffsetFetchRequest",
        members=(
            *("group_id", "require_stable", "topics", "groups", "max_version"),
            *("OffsetFetchRequestTopic", "OffsetFetchRequestGroup"),
        ),
    ),
    Part(
        "kafka.protocol.metadata",
        "MetadataRequest",
        members=(
            *("topics", "allow_auto_topic_creation", "ALL_TOPICS", "MetadataRequestTopic"),
            *("include_cluster_authorized_operations", "include_topic_authorized_operations"),
        ),
    ),
)


class _Absent:
    """Stands for a part that the installed release does not have, and is never worked with."""


def part(name: str) -> Any:
    """The class of that name from `PARTS`, or a stand-in."""
    found = _find(next(each for each in PARTS if each.name == name))
    return _Absent if found is None else found


def check_kafka_python() -> None:
    """Refuse to work with a kafka-python that lacks something.

    Raises:
        ConfigError: it names the installed version, what is missing, and the versions supported.
    """
    missing = problems()
    if missing:
        raise ConfigError(
            f"kafka-python {installed_version} cannot be used: {'; '.join(missing)}. Supported is "
            f"{SUPPORTED}: install such a version wherever stream threads run."
        )


def problems(find: Callable[[Part], Any] | None = None) -> list[str]:
    """Everything about the installed kafka-python that hinders us; nothing if it will do.

    Args:
        find: looks a part up, None if it is missing; by default in kafka-python.
    """
    find = find or _find
    found = {each.name: find(each) for each in PARTS}
    told = list(_version_problems())
    for each in PARTS:
        if found[each.name] is None:
            told.append(f"{each.path} is missing")
        else:
            told += (f"{each.path}{what}" for what in _class_problems(each, found[each.name]))
    if not told:
        told += _instance_problems(found)
    return told


def _find(wanted: Part) -> Any:
    try:
        return getattr(import_module(wanted.module), wanted.name, None)
    except ImportError:
        return None


def _version_problems() -> Iterator[str]:
    numbers = tuple(int(number) for number in re.findall(r"\d+", installed_version)[:3])
    if not OLDEST <= numbers < BELOW:
        yield "this version is not one that works"


def _class_problems(wanted: Part, found: Any) -> Iterator[str]:
    if wanted.takes is not None and not _accepts(found, wanted.takes):
        yield f" is not made with ({', '.join(wanted.takes)})"
    for written, parameters in wanted.methods.items():
        name = written.removesuffix("()")
        method = getattr(found, name, None)
        if method is None:
            yield f" has no {name}"
        elif not _accepts(method, ("self", *parameters)):
            yield f".{name} does not take ({', '.join(parameters)})"
        elif written.endswith("()") and not inspect.iscoroutinefunction(method):
            yield f".{name} is no coroutine function"
    for name in wanted.members:
        if not hasattr(found, name):
            yield f" has no {name}"


def _accepts(call: Any, names: tuple[str, ...]) -> bool:
    """Whether these are the first parameters by position, and all that there must be."""
    parameters = list(inspect.signature(call).parameters.values())
    rest = parameters[len(names) :]
    return tuple(each.name for each in parameters[: len(names)]) == names and all(
        each.default is not each.empty or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        for each in rest
    )


def _instance_problems(found: Mapping[str, Any]) -> Iterator[str]:
    """Whether objects have the attributes that only their making gives them."""
    with contextlib.ExitStack() as done:
        try:
            instances = _instances(found, done)
        except Exception as error:
            yield f"its objects cannot be made: {type(error).__name__}: {error}"
            return
        for each in PARTS:
            for name in each.attributes:
                if not hasattr(instances[each.name], name):
                    yield f"{each.path} has no {name}"


def _instances(found: Mapping[str, Any], done: contextlib.ExitStack) -> dict[str, Any]:
    """One object of each class with attributes; nothing is connected or started by that."""
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
