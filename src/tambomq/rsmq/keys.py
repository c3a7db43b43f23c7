"""Every Redis key and hash field RSMQ uses, and which names are legal. No other file spells one.

The hash of a queue holds its attributes and, beside them, its messages::

    vt delay maxsize created modified     from creation on
    totalsent totalrecv                   after the first send and receive
    <id>                                  a body
    <id>:rc  <id>:fr                      receives, and when the first was (ms)
    <id>:why                              in a dead-letter queue: why it is there, and a traceback

The hash of a lease: who has it, and what it has::

    owner label until                     a token, who that is, and for how long (ms)
    hidden_until                          from then on others may have the messages (ms)
    acked                                 claims that are over
    claim mark                            the open claim's number, and the name only it has
    token                                 the same name, if the claim has recorded its deliveries
    released                              the last claim that was taken away
    lapsed                                the mark of a claim that others may have had messages of

The hash of receipts, which other clients do not have: who holds a message::

    <id>                                  <receipt> <hidden at> <for how long> (seconds)
    ''                                    keeps the key when there is no other

A receipt is ``<rc>-<token>``, of which nobody but that delivery has the token. It counts while the
message's own ``rc`` is the same: a client without tokens counts too.

The scripts spell the fields too; a field that changes here changes there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tambomq.errors import InvalidFormat
from tambomq.journal.recording import Recording

NAMESPACE = "rsmq"
DEAD_SUFFIX = "-dead"

ATTRIBUTES = ("vt", "delay", "maxsize", "created", "modified")
COUNTERS = ("totalsent", "totalrecv")
ID_SUFFIX_LENGTH = 22

_QUEUE = re.compile(r"[A-Za-z0-9_.-]{1,160}", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9:]{32}", re.ASCII)
# An id that no client of ours makes, as `replies.id_text` shows it.
_FOREIGN_ID = re.compile(r"(?=.*\\)(?:[^\\]|\\\\|\\x[0-9a-f]{2}){1,1024}", re.DOTALL)
_LEASE = re.compile(r"[A-Za-z0-9_.-]{1,160}", re.ASCII)


def is_queue(text: str) -> bool:
    """Whether *text* may name a queue."""
    return _QUEUE.fullmatch(text) is not None and text != "QUEUES"


def check_queue(queue: str) -> str:
    """Return *queue* if it may name a queue; raise `InvalidFormat` if not."""
    if not isinstance(queue, str) or _QUEUE.fullmatch(queue) is None:
        raise InvalidFormat("queue name", queue, "1 to 160 of A-Z a-z 0-9 _ - .")
    if queue == "QUEUES":
        raise InvalidFormat("queue name", queue, "its key is the one that lists all queues")
    return queue


def check_dead_queue(dead: str, *, of: str) -> str:
    """Return *dead* if it may take the dead letters *of* a queue: any other may."""
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
    recording: Recording | None = None
    """Which queues have a journal."""

    def __post_init__(self) -> None:
        """Refuse a namespace that would make keys of another kind."""
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
        base = f"{self.ns}:{check_queue(queue)}"
        return base, f"{base}:Q"

    def receipts(self, queue: str) -> str:
        """Hash: the last delivery of each message that a client of ours has received."""
        return f"{self.ns}:{queue}:receipts"

    def all_of(self, queue: str) -> tuple[str, str, str]:
        """All keys of a queue, its name checked: messages, data and receipts."""
        base = f"{self.ns}:{check_queue(queue)}"
        return base, f"{base}:Q", f"{base}:receipts"

    def change(self, queue: str, token: str) -> str:
        """String: that the attributes were changed by the call that has *token*."""
        return f"{self.ns}:{queue}:set:{token}"

    def notices(self, queue: str) -> str:
        """Channel: after a send with realtime on, how many messages there are."""
        return f"{self.ns}:rt:{queue}"

    def leases(self, queue: str) -> str:
        """Set: the names of all leases on a queue."""
        return f"{self.of(queue)[0]}:leases"

    @property
    def any_leases(self) -> str:
        """Matches the leases of all queues."""
        return f"{self.ns}:*:leases"

    def leased(self, key: str) -> str | None:
        """Return the queue whose leases *key* holds; only for finding them."""
        name = key.removeprefix(f"{self.ns}:").removesuffix(":leases")
        return name if is_queue(name) and key == self.leases(name) else None

    def ledger(self, queue: str, lease: str) -> str:
        """Hash: who has the lease, and which claim is open."""
        return f"{self.of(queue)[0]}:lease:{check_lease(lease)}"

    def members(self, queue: str, lease: str) -> str:
        """List: the messages of the open claim, as ``<rc> <digest> <id>``."""
        return f"{self.ledger(queue, lease)}:members"

    def verdicts(self, queue: str, lease: str) -> str:
        """Hash: what is to become of a message other than its end, by id."""
        return f"{self.ledger(queue, lease)}:verdicts"

    def fence(self, queue: str, query: str) -> str:
        """Hash: which chunks of rows *query* has written to the queue, and a digest of each."""
        return f"{self.ns}:{queue}:fence:{query}"

    def redrives(self, queue: str) -> str:
        """Set: the ids of all redrives of dead letters into a queue."""
        return f"{self.of(queue)[0]}:redrives"

    def redrive(self, queue: str, id: str) -> str:
        """Hash: what a redrive was told, and how far it has come."""
        return f"{self.of(queue)[0]}:redrive:{check_lease(id)}"

    def redriven(self, queue: str, id: str) -> str:
        """Stream: ``from`` and ``to`` of what it moved, and the dead letter as it was."""
        return f"{self.redrive(queue, id)}:moved"

    def move(self, queue: str, id: str) -> str:
        """Hash: how far a move of the queue's messages to another place has come."""
        return f"{self.of(queue)[0]}:move:{check_lease(id)}"

    def transit(self, queue: str, id: str) -> str:
        """List: what has left the queue and may not have arrived yet."""
        return f"{self.move(queue, id)}:transit"

    def origins(self, queue: str, query: str) -> str:
        """Hash: which message was which, before *query* wrote it to the queue under a new id."""
        return f"{self.fence(queue, query)}:origins"
