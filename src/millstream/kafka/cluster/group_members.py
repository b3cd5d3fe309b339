"""Putting members out of a group: what librdkafka cannot, and kafka-python's admin client can."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from kafka import KafkaAdminClient
from kafka import errors as client_errors
from kafka.admin import MemberToRemove

from millstream.config import StreamsConfig
from millstream.errors import StreamsError
from millstream.kafka.cluster.group_admin import Member
from millstream.kafka.settings.clients import kafka_python_settings

_NAME: Final = "command-line"


def remove_members(config: StreamsConfig, members: Iterable[Member]) -> None:
    """Put members out of an application's group. One that lives will join again.

    Args:
        config: the settings of the application, whose id is the group's.
        members: whom.

    Raises:
        StreamsError: the broker refuses, or does not answer.
    """
    given = kafka_python_settings(config, client_id=f"{config.application_id}-{_NAME}")
    settings = {
        name: value for name, value in given.items() if name in KafkaAdminClient.DEFAULT_CONFIG
    }
    # A static member is known by its own name, others by the broker's.
    leaving = [
        MemberToRemove(group_instance_id=each.instance_id)
        if each.instance_id
        else MemberToRemove(member_id=each.member_id)
        for each in members
    ]
    log = logging.getLogger("kafka")
    level = log.level
    # What goes wrong is told here, once.
    log.setLevel(logging.CRITICAL)
    try:
        client = KafkaAdminClient(**settings)
        try:
            results = client.remove_group_members(config.application_id, leaving)
        finally:
            client.close()
        # One that has left meanwhile is out as well.
        gone = (client_errors.NoError, client_errors.UnknownMemberIdError)
        failed = [error for error in results.values() if error not in gone]
        if failed:
            raise failed[0]
    except client_errors.KafkaError as error:
        raise StreamsError(
            f"The members of group {config.application_id!r} could not be removed: "
            f"{type(error).__name__} {error}. Stop the instances, or wait until their session "
            "timeout has passed."
        ) from error
    finally:
        log.setLevel(level)
