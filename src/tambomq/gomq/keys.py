"""Every key GOMQ uses, and which names are legal. No other file spells one.

Keys are built, never taken apart: a key or a consumer may hold an underscore. What the names below
stand for, and of which type they are: docs/protocols/gomq.md.
"""

from __future__ import annotations

import re
from typing import Final

from tambomq.errors import InvalidFormat

_LEASE: Final = re.compile(r"[A-Za-z0-9_.-]{1,160}", re.ASCII)

SUBSCRIBED_KEYS: Final = "SUBSCRIBED_KEYS"

# Scripts build the keys of those they find in a set, from these.
QUEUE: Final = "QUEUE_"
CONSUMERS: Final = "CONSUMERS_"
SUBSCRIPTIONS: Final = "SUBSCRIPTIONS_"
PEERS: Final = "PEERS_"
MESSAGES: Final = "MESSAGES_"
LASTACTION: Final = "LASTACTION_"
# Ours, beside the page's: who has received what (hash), and batches not yet acknowledged (string).
TALLY: Final = "TALLY_"
HANDED: Final = "HANDED_"
# Which chunks of rows a query has written to a main queue, and a digest of each (hash).
FENCE: Final = "FENCE_"

# Who holds a lease and what it has (hash), and the leases of a key (set).
LEASE: Final = "LEASE_"
LEASES: Final = "LEASES_"

# How far a move of a key to another place has come (hash), and what is on its way (list).
MOVE: Final = "MOVE_"
TRANSIT: Final = "TRANSIT_"
# Which message was which, before a query published it under a new id (hash).
ORIGINS: Final = "ORIGINS_"

# Who leaves a key does so in steps: docs/protocols/gomq.md#leaving. Which keys have somebody who
# is not gone yet (set), and the number that was given last to what was set aside (string).
UNSETTLED: Final = "UNSETTLED"
ASIDE: Final = "ASIDE"
# Keys whose backlog is not delivered yet, since the first to subscribe has only just come (zset of
# the key and the time in ms at which it is): docs/protocols/gomq.md#backlog.
HELD: Final = "HELD"
# Of a key: its dedicated queues that were set aside, by number (zset of number and place), and the
# consumers whose peers still have theirs (hash of consumer, number and place).
LEAVING: Final = "LEAVING_"
UNSUBSCRIBED: Final = "UNSUBSCRIBED_"
# One dedicated queue that was set aside (list), and the peers of a consumer that unsubscribed
# (set): a number and the key follow.
LEFT: Final = "LEFT_"
LEAVERS: Final = "LEAVERS_"

CHANNEL: Final = "gomq:"
"""Where a consumer's watchers hear that something waits: a channel, not a key."""


def queue(key: str) -> str:
    """The main queue."""
    return QUEUE + key


def consumers(key: str) -> str:
    """Who is subscribed to *key*."""
    return CONSUMERS + key


def tally(key: str) -> str:
    """How many messages of *key* were dispatched, and who was there from when on."""
    return TALLY + key


def leaving(key: str) -> str:
    """The dedicated queues of *key* that were set aside."""
    return LEAVING + key


def unsubscribed(key: str) -> str:
    """Consumers of *key* that are gone, and whose peers still have dedicated queues."""
    return UNSUBSCRIBED + key


def subscriptions(consumer: str) -> str:
    """What *consumer* is subscribed to."""
    return SUBSCRIPTIONS + consumer


def peers(consumer: str) -> str:
    """The connected clients of *consumer*."""
    return PEERS + consumer


def channel(consumer: str) -> str:
    """Where the watchers of *consumer* listen."""
    return CHANNEL + consumer


def lists(key: str) -> str:
    """How the dedicated queues of *key* begin: its consumer and peer follow."""
    return f"{MESSAGES}{key}_"


def messages(key: str, consumer: str, peer: str) -> str:
    """The dedicated queue of one peer."""
    return f"{lists(key)}{consumer}_{peer}"


def last_action(peer: str) -> str:
    """When *peer* last observed."""
    return LASTACTION + peer


def handed(consumer: str, peer: str) -> str:
    """What was handed to *peer* and is not acknowledged."""
    return f"{HANDED}{consumer}_{peer}"


def fence(key: str, query: str) -> str:
    """What *query* has written to the main queue of *key*."""
    return f"{FENCE}{key}_{query}"


def leases(key: str) -> str:
    """The names of all leases on *key*."""
    return LEASES + key


def leased(name: str) -> str | None:
    """Return the key whose leases *name* holds; only for finding them."""
    return name.removeprefix(LEASES) or None


def ledger(key: str, lease: str) -> str:
    """Who has the lease, and which claim is open."""
    return f"{LEASE}{check_lease(lease)}:{key}"


def lessee(lease: str) -> str:
    """The consumer, and its one peer, that receives for a lease."""
    return f"spark-{lease}"


def move(key: str, id: str) -> str:
    """How far a move of *key* has come."""
    return f"{MOVE}{check_lease(id)}:{key}"


def transit(key: str, id: str) -> str:
    """What has left the main queue and may not have arrived yet."""
    return f"{TRANSIT}{check_lease(id)}:{key}"


def origins(key: str, query: str) -> str:
    """Which messages *query* has published, by their new ids."""
    return f"{ORIGINS}{key}_{query}"


def check_lease(lease: str) -> str:
    """Return *lease* if it may name a lease; raise `InvalidFormat` if not."""
    if not isinstance(lease, str) or _LEASE.fullmatch(lease) is None:
        raise InvalidFormat("lease", lease, "1 to 160 of A-Z a-z 0-9 _ - .")
    return lease


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
"""A script builds the names of thousands of keys from it, and a record of a reply holds it."""
