"""A user's rights on a broker with authorization: granted for the duration of a block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it has no __all__
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from millstream.testing import EmbeddedKafka
from support.waiting import wait_for

_TIMEOUT_S = 30.0

#: Settings of a broker that denies everything without a grant. Tools use its unsecured listener
#: and are superusers.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class Permission(NamedTuple):
    """One operation on one resource.

    Args:
        operation: Kafka's name of the operation, such as READ.
        kind: of the resource: TOPIC, GROUP, TRANSACTIONAL_ID, or BROKER for the cluster.
        name: of the resource, or a prefix with a trailing asterisk.
    """

    operation: str
    kind: str
    name: str

    def binding(self, user: str) -> Any:
        return AclBinding(*self._pattern(), f"User:{user}", "*", *self._how())

    def filter(self, user: str) -> Any:
        return AclBindingFilter(*self._pattern(), f"User:{user}", "*", *self._how())

    def _pattern(self) -> tuple[Any, str, Any]:
        prefixed = self.name.endswith("*")
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        return ResourceType[self.kind], self.name.removesuffix("*"), pattern

    def _how(self) -> tuple[Any, Any]:
        return AclOperation[self.operation], AclPermissionType.ALLOW


@contextmanager
def granted(kafka: EmbeddedKafka, user: str, rights: Collection[Permission]) -> Iterator[None]:
    """Grant these rights to a user within the block."""
    admin = AdminClient({"bootstrap.servers": kafka.unsecured_servers})
    bindings = [right.binding(user) for right in rights]
    for future in admin.create_acls(bindings, request_timeout=_TIMEOUT_S).values():
        future.result()
    _await(admin, user, lambda found: found.issuperset(bindings))
    try:
        yield
    finally:
        filters = [right.filter(user) for right in rights]
        for future in admin.delete_acls(filters, request_timeout=_TIMEOUT_S).values():
            future.result()
        _await(admin, user, lambda found: found.isdisjoint(bindings))


def _await(admin: Any, user: str, is_so: Callable[[set[Any]], bool]) -> None:
    """Wait until the broker enforces the change, shortly after it has confirmed it."""
    anywhere: Any = None
    everything = AclBindingFilter(
        ResourceType.ANY,
        anywhere,
        ResourcePatternType.ANY,
        f"User:{user}",
        anywhere,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    wait_for(
        lambda: is_so(set(admin.describe_acls(everything, request_timeout=_TIMEOUT_S).result())),
        _TIMEOUT_S,
        f"the rights of {user} are changed",
    )
