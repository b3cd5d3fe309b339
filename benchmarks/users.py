"""The table of users that some workloads join with: who lives in which town."""

from __future__ import annotations

from load import Load, user_key

USERS_TOPIC = "users"
TOWNS = ("Oslo", "Bergen", "Lima", "Quito", "Accra", "Osaka", "Perth", "Turin")
MOST_USERS = 10_000


def users_of(records: int) -> int:
    """How many users there are in a load of so many records, each of them one of the records."""
    return min(MOST_USERS, records // 10)


def town_of(user: int) -> str:
    """The town of a user."""
    return TOWNS[user % len(TOWNS)]


def fill_users(load: Load) -> int:
    """Writes the table, as of before all events; how many users it has."""
    users = users_of(load.records)
    writer = load.create(USERS_TOPIC)
    for user in range(users):
        value = f'{{"user":"user-{user}","town":"{town_of(user)}"}}'
        writer.send(user_key(user), value.encode(), load.began_ms - 1)
    writer.flush()
    return users
