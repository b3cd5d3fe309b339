"""The table with the town of each user, which some workloads join."""

from __future__ import annotations

from harness.load import Load, user_key

USERS_TOPIC = "users"
TOWNS = ("Oslo", "Bergen", "Lima", "Quito", "Accra", "Osaka", "Perth", "Turin")
MAX_USERS = 10_000


def users_of(records: int) -> int:
    """Return how many of a load's records are rows of the table of users."""
    return min(MAX_USERS, records // 10)


def town_of(user: int) -> str:
    """Return the town of a user."""
    return TOWNS[user % len(TOWNS)]


def fill_users(load: Load) -> int:
    """Write the table with timestamps before all events; return the number of users."""
    users = users_of(load.records)
    writer = load.create(USERS_TOPIC)
    for user in range(users):
        value = f'{{"user":"user-{user}","town":"{town_of(user)}"}}'
        writer.send(user_key(user), value.encode(), load.began_ms - 1)
    writer.flush()
    return users
