"""What a user may do on a broker that asks: rights that are granted and taken away again."""

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

#: For a broker on which only those who were granted something may do it; tools, which use its
#: unsecured listener, may do everything.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class Right(NamedTuple):
    """One operation on one resource.

    Args:
        operation: by Kafka's name: READ.
        kind: of the resource: TOPIC, GROUP, TRANSACTIONAL_ID, BROKER for the cluster.
        name: its name, or with a star behind it what its name begins with.
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
def granted(kafka: EmbeddedKafka, user: str, rights: Collection[Right]) -> Iterator[None]:
    """A user has these rights within the block."""
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
    """Wait until the broker acts by what was changed, a moment after it was answered."""
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
