"""Redis keys of GOMQ, and the checks of names. No other file spells a key.

Keys are built and never parsed: the name of a key or a consumer may contain an underscore.
The meaning and type of each is in docs/protocols/gomq.md.
"""

from __future__ import annotations

import re
from typing import Final

from tambomq.errors import InvalidFormat

_LEASE: Final = re.compile(r"[A-Za-z0-9_.-]{1,160}", re.ASCII)

SUBSCRIBED_KEYS: Final = "SUBSCRIBED_KEYS"

# Scripts build the keys for the members of a set from these prefixes.
QUEUE: Final = "QUEUE_"
CONSUMERS: Final = "CONSUMERS_"
SUBSCRIPTIONS: Final = "SUBSCRIPTIONS_"
PEERS: Final = "PEERS_"
MESSAGES: Final = "MESSAGES_"
LASTACTION: Final = "LASTACTION_"
# Additions to the protocol: per key, the positions of its receivers (hash), and per peer, the batch
# that is not acknowledged yet (string).
TALLY: Final = "TALLY_"
HANDED: Final = "HANDED_"
# The chunks of rows that a query has written to a main queue, with a digest of each (hash).
FENCE: Final = "FENCE_"

# A lease: its holder and its open claim (hash), and the names of all leases of a key (set).
LEASE: Final = "LEASE_"
LEASES: Final = "LEASES_"

# A move of a key to another server or queue: its progress (hash), and messages in transit (list).
MOVE: Final = "MOVE_"
TRANSIT: Final = "TRANSIT_"
# The original ids of messages that a query published under new ids (hash).
ORIGINS: Final = "ORIGINS_"

# Peers leave a key in steps: docs/protocols/gomq.md#leaving. Keys with unsettled messages of
# departed peers (set), and the last number of a queue that was set aside (string).
UNSETTLED: Final = "UNSETTLED"
ASIDE: Final = "ASIDE"
# Keys whose backlog is held for a moment after their first subscription (zset of the key, by the
# time in ms at which it is delivered): docs/protocols/gomq.md#backlog.
HELD: Final = "HELD"
# Of a key: its dedicated queues that were set aside, by number (zset of number and position), and
# unsubscribed consumers whose peers still have theirs (hash of consumer, number and position).
LEAVING: Final = "LEAVING_"
UNSUBSCRIBED: Final = "UNSUBSCRIBED_"
# One dedicated queue that was set aside (list), and the peers of an unsubscribed consumer (set).
# The number and the key follow.
LEFT: Final = "LEFT_"
LEAVERS: Final = "LEAVERS_"

DEAD_SUFFIX: Final = "-dead"
"""A key gets its dead letters as messages of the key with this suffix."""

CHANNEL: Final = "gomq:"
"""Prefix of the pub/sub channel that notifies the watchers of a consumer; not a key."""


def queue(key: str) -> str:
    """The main queue."""
    return QUEUE + key


def dead_letters(key: str) -> str | None:
    """The key that gets the dead letters of *key*; `None` if they have none of their own."""
    dead = key + DEAD_SUFFIX
    return dead if is_key(dead) and not key.endswith(DEAD_SUFFIX) else None


def consumers(key: str) -> str:
    """The consumers that are subscribed to *key*."""
    return CONSUMERS + key


def tally(key: str) -> str:
    """The number of dispatched messages of *key*, and the number at which each receiver joined."""
    return TALLY + key


def leaving(key: str) -> str:
    """The dedicated queues of *key* that were set aside."""
    return LEAVING + key


def unsubscribed(key: str) -> str:
    """Unsubscribed consumers of *key* whose peers still have dedicated queues."""
    return UNSUBSCRIBED + key


def subscriptions(consumer: str) -> str:
    """The keys that *consumer* is subscribed to."""
    return SUBSCRIPTIONS + consumer


def peers(consumer: str) -> str:
    """The connected clients of *consumer*."""
    return PEERS + consumer


def channel(consumer: str) -> str:
    """The channel of the watchers of *consumer*."""
    return CHANNEL + consumer


def lists(key: str) -> str:
    """The prefix of the dedicated queues of *key*; consumer and peer follow."""
    return f"{MESSAGES}{key}_"


def messages(key: str, consumer: str, peer: str) -> str:
    """The dedicated queue of one peer."""
    return f"{lists(key)}{consumer}_{peer}"


def last_action(peer: str) -> str:
    """The time at which *peer* last observed."""
    return LASTACTION + peer


def handed(consumer: str, peer: str) -> str:
    """The batch that *peer* has not acknowledged yet."""
    return f"{HANDED}{consumer}_{peer}"


def fence(key: str, query: str) -> str:
    """The chunks that *query* has written to the main queue of *key*."""
    return f"{FENCE}{key}_{query}"


def leases(key: str) -> str:
    """The names of all leases on *key*."""
    return LEASES + key


def leased(name: str) -> str | None:
    """Return the key whose leases the Redis key *name* holds."""
    return name.removeprefix(LEASES) or None


def ledger(key: str, lease: str) -> str:
    """The holder of the lease, and its open claim."""
    return f"{LEASE}{check_lease(lease)}:{key}"


def lessee(lease: str) -> str:
    """The consumer, and its one peer, that receives for a lease."""
    return f"spark-{lease}"


def move(key: str, id: str) -> str:
    """The progress of a move of *key*."""
    return f"{MOVE}{check_lease(id)}:{key}"


def transit(key: str, id: str) -> str:
    """List of messages in transit: taken from the main queue, maybe not in the target yet."""
    return f"{TRANSIT}{check_lease(id)}:{key}"


def origins(key: str, query: str) -> str:
    """The original ids of the messages that *query* has published, by their new ids."""
    return f"{ORIGINS}{key}_{query}"


def check_lease(lease: str) -> str:
    """Return *lease* if it may name a lease; raise `InvalidFormat` if not."""
    if not isinstance(lease, str) or _LEASE.fullmatch(lease) is None:
        raise InvalidFormat("lease", lease, "1 to 160 of A-Z a-z 0-9 _ - .")
    return lease


def is_key(key: str) -> bool:
    """Whether *key* may name a queue."""
    return 0 < len(key) <= NAME_CHARS


def check_key(key: str) -> None:
    """Raise `InvalidFormat` unless *key* names a queue."""
    _check("key", key)


def check_consumer(consumer: str) -> None:
    """Raise `InvalidFormat` unless *consumer* names one."""
    _check("consumerID", consumer)


def _check(what: str, name: str) -> None:
    if not name:
        raise InvalidFormat(what, name, "it must not be empty")
    if len(name) > NAME_CHARS:
        raise InvalidFormat(what, f"{name[:20]}…", f"at most {NAME_CHARS} characters")


NAME_CHARS: Final = 1024
"""Bounded because scripts build the names of thousands of Redis keys from it."""
