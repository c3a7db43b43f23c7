"""Redis keys and hash fields of RSMQ, and the checks of names. No other file spells a key.

The hash of a queue holds its attributes and its messages::

    vt delay maxsize created modified     from creation on
    totalsent totalrecv                   after the first send and receive
    <id>                                  a body
    <id>:rc  <id>:fr                      receive count, and time of the first receive (ms)
    <id>:why                              in a dead-letter queue: the reason, and a traceback

The hash of a lease::

    owner label until                     the holder's token, its name, and the expiry (ms)
    hidden_until                          when the claimed messages become visible again (ms)
    acked                                 the number of the last claim that is over
    claim mark                            the open claim's number, and its unique token
    token                                 the same token, once the claim's deliveries are recorded
    released                              the last claim that was released
    lapsed                                the token of a claim whose messages became visible

The hash of receipts, which other RSMQ clients do not have: the last delivery of a message::

    <id>                                  <receipt> <hidden at> <for how long> (seconds)
    ''                                    keeps the key when it has no other field

A receipt is ``<rc>-<token>``, with a token unique to the delivery. It is valid while the message's
``rc`` is the same: a receive by a client without tokens changes ``rc`` too.

The scripts use the same field names: change both together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from tambomq.errors import InvalidFormat

NAMESPACE = "rsmq"
ANY_NAMESPACE = "*:QUEUES"
"""Matches `Keys.queues` of every namespace."""
DEAD_SUFFIX = "-dead"

ATTRIBUTES = ("vt", "delay", "maxsize", "created", "modified")
COUNTERS = ("totalsent", "totalrecv")
ID_SUFFIX_LENGTH = 22

_QUEUE = re.compile(r"[A-Za-z0-9_.-]{1,160}", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9:]{32}", re.ASCII)
# An id in another form than RSMQ's, escaped by `replies.id_text`.
_FOREIGN_ID = re.compile(r"(?=.*\\)(?:[^\\]|\\\\|\\x[0-9a-f]{2}){1,1024}", re.DOTALL)
_LEASE = re.compile(r"[A-Za-z0-9_.-]{1,160}", re.ASCII)


def namespace_of(queues: str) -> str:
    """Return the namespace whose `Keys.queues` is *queues*."""
    return queues.removesuffix(ANY_NAMESPACE[1:])


def is_queue(text: str) -> bool:
    """Whether *text* may name a queue."""
    return _QUEUE.fullmatch(text) is not None and text != "QUEUES"


def check_queue(queue: str) -> str:
    """Return *queue* if it may name a queue; raise `InvalidFormat` if not."""
    if not isinstance(queue, str) or _QUEUE.fullmatch(queue) is None:
        raise InvalidFormat("queue name", queue, "1 to 160 of A-Z a-z 0-9 _ - .")
    if queue == "QUEUES":
        raise InvalidFormat(
            "queue name", queue, "reserved: its key would be the set of all queue names"
        )
    return queue


# Bounded, since short-lived queue names must not fill memory.
@lru_cache(maxsize=1024)
def _keys_of(ns: str, queue: str) -> tuple[str, str, str, str]:
    """Return what `Keys.to_receive` does: checking a name and joining keys takes a microsecond."""
    base = f"{ns}:{check_queue(queue)}"
    return base, f"{base}:Q", f"{base}:receipts", f"{base}:bounds"


def check_dead_queue(dead: str, *, of: str) -> str:
    """Return *dead* if it may be the dead-letter queue *of* a queue: any other queue may."""
    if dead == of:
        raise InvalidFormat("dead-letter queue", dead, "it is the queue itself")
    return check_queue(dead)


def check_id(id: str) -> str:
    """Return *id* if it may be a message's; raise `InvalidFormat` if not."""
    if not isinstance(id, str) or not (_ID.fullmatch(id) or _FOREIGN_ID.fullmatch(id)):
        raise InvalidFormat("message id", id, "32 of A-Z a-z 0-9 :")
    return id


def check_lease(lease: str) -> str:
    """Return *lease* if it may name a lease; raise `InvalidFormat` if not."""
    if not isinstance(lease, str) or _LEASE.fullmatch(lease) is None:
        raise InvalidFormat("lease", lease, "1 to 160 of A-Z a-z 0-9 _ - .")
    return lease


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one namespace; ``{tag}`` keeps them on one node of a cluster."""

    ns: str = NAMESPACE

    def __post_init__(self) -> None:
        """Refuse a namespace that is empty, or has spaces or control characters."""
        if not self.ns or not self.ns.isprintable() or " " in self.ns:
            raise InvalidFormat("namespace", self.ns, "printable and without spaces")

    @property
    def queues(self) -> str:
        """Set: the names of all queues."""
        return f"{self.ns}:QUEUES"

    def messages(self, queue: str) -> str:
        """Zset: message id, scored by the millisecond it becomes visible."""
        return f"{self.ns}:{queue}"

    def data(self, queue: str) -> str:
        """Hash: attributes, counters, bodies."""
        return f"{self.ns}:{queue}:Q"

    def of(self, queue: str) -> tuple[str, str]:
        """Both keys of a queue, its name checked: messages and data."""
        return self.to_receive(queue)[:2]

    def receipts(self, queue: str) -> str:
        """Hash: the last delivery of each message that this library has received."""
        return f"{self.ns}:{queue}:receipts"

    def all_of(self, queue: str) -> tuple[str, str, str]:
        """All keys of a queue, its name checked: messages, data and receipts."""
        return self.to_receive(queue)[:3]

    def bounds(self, queue: str) -> str:
        """Hash: the bounds of a queue, and what was refused and dead-lettered because of them.

        Scripts find the zset `sizes` by adding ``:sizes`` to this key.
        """
        return f"{self.of(queue)[0]}:bounds"

    def sizes(self, queue: str) -> str:
        """Zset: ``<id> <bytes>`` of each message that counts for `max_bytes`, in order of ids."""
        return f"{self.bounds(queue)}:sizes"

    def to_send(self, queue: str) -> tuple[str, str, str]:
        """The keys of a send, the queue's name checked: messages, data and bounds."""
        messages, data, _, bounds = self.to_receive(queue)
        return messages, data, bounds

    def to_receive(self, queue: str) -> tuple[str, str, str, str]:
        """The keys of a receive, the queue's name checked: `all_of` and bounds."""
        # What is no string may have no hash.
        return _keys_of(self.ns, queue if type(queue) is str else check_queue(queue))

    def patterns(self, queue: str) -> tuple[str, str]:
        """Globs that match every key of a queue, and none of another; *queue* may be one itself."""
        base = self.messages(queue)
        return base, f"{base}:*"

    def change(self, queue: str, token: str) -> str:
        """String: marks that the call with *token* has changed the attributes."""
        return f"{self.ns}:{queue}:set:{token}"

    def realtime_channel(self, queue: str) -> str:
        """Channel: a send with realtime on publishes the number of messages here."""
        return f"{self.ns}:rt:{queue}"

    def leases(self, queue: str) -> str:
        """Set: the names of all leases on a queue."""
        return f"{self.of(queue)[0]}:leases"

    @property
    def any_leases(self) -> str:
        """Pattern: matches `leases` of all queues."""
        return f"{self.ns}:*:leases"

    def leased(self, key: str) -> str | None:
        """Return the queue whose `leases` key is *key*, or `None`; for scans only."""
        name = key.removeprefix(f"{self.ns}:").removesuffix(":leases")
        return name if is_queue(name) and key == self.leases(name) else None

    def ledger(self, queue: str, lease: str) -> str:
        """Hash: the holder of the lease, and its open claim."""
        return f"{self.of(queue)[0]}:lease:{check_lease(lease)}"

    def members(self, queue: str, lease: str) -> str:
        """List: the messages of the open claim, as ``<rc> <digest> <id>``."""
        return f"{self.ledger(queue, lease)}:members"

    def verdicts(self, queue: str, lease: str) -> str:
        """Hash: decisions about messages that are not simply deleted, by id."""
        return f"{self.ledger(queue, lease)}:verdicts"

    def fence(self, queue: str, query: str) -> str:
        """Hash: which chunks of rows *query* has written to the queue, and a digest of each."""
        return f"{self.ns}:{queue}:fence:{query}"

    def redrives(self, queue: str) -> str:
        """Set: the ids of all redrives of dead letters into a queue."""
        return f"{self.of(queue)[0]}:redrives"

    def redrive(self, queue: str, id: str) -> str:
        """Hash: the options and the progress of a redrive."""
        return f"{self.of(queue)[0]}:redrive:{check_lease(id)}"

    def redriven(self, queue: str, id: str) -> str:
        """Stream: ``from`` and ``to`` ids of moved messages, and each dead letter as it was."""
        return f"{self.redrive(queue, id)}:moved"

    def discarded(self, queue: str, id: str) -> str:
        """Stream: dead letters that were deleted and can be restored for a while."""
        return f"{self.of(queue)[0]}:discarded:{check_lease(id)}"

    def move(self, queue: str, id: str) -> str:
        """Hash: the progress of a move of the queue's messages to another server or protocol."""
        return f"{self.of(queue)[0]}:move:{check_lease(id)}"

    def transit(self, queue: str, id: str) -> str:
        """List: messages that have left the queue and may not have arrived yet."""
        return f"{self.move(queue, id)}:transit"

    def origins(self, queue: str, query: str) -> str:
        """Hash: the original ids of messages that *query* wrote to the queue under new ids."""
        return f"{self.fence(queue, query)}:origins"
