"""Every Redis key ChasquiMQ uses, and which names are legal. No other file spells one.

All keys of a queue begin with the same hash tag, so on a cluster they are on
one node. The fields::

    stream   d n                                     envelope, dispatch name
    dlq      d n source_id reason detail             and where it was, why it is here,
             error_type traceback                    and what its handler raised
    events   e id ts n …                             see docs/protocols/chasqui.md
    spec     spec fired                              of repeat:spec:<key>, a hash
    lease    owner label until hidden_until          who has it, until when (ms)
             acked claim mark released lapsed        and what it has

The scripts spell the fields too; a field that changes here changes there.
"""

from __future__ import annotations

import re

from tambomq.errors import InvalidFormat

GROUP = "default"
RETURNED = "tambo-returned"
"""The consumer in whose name entries lie that a worker has given back."""
NAME_BYTES = 256
"""A dispatch name has at most so many bytes …"""
PAGE_NAME_BYTES = 255
"""… and one less where a delayed member counts them in a single byte."""

PAYLOAD, NAME = b"d", b"n"

_LEASE = re.compile(r"[A-Za-z0-9_.-]{1,160}", re.ASCII)
_GLOB = re.compile(r"([\\*?\[\]^])")


class Keys:
    """The keys of one queue."""

    __slots__ = (
        "_base",
        "delayed",
        "dlq",
        "events",
        "limiter",
        "paused",
        "promoter_lock",
        "queue",
        "repeat",
        "scheduler_lock",
        "stream",
    )

    def __init__(self, queue: str) -> None:
        self.queue = check_queue(queue)
        base = self._base = f"{{chasqui:{queue}}}"
        self.stream = f"{base}:stream"
        """Stream: jobs that wait and jobs that run."""
        self.dlq = f"{base}:dlq"
        """Stream: dead letters."""
        self.delayed = f"{base}:delayed"
        """Zset: members scored by the millisecond they are due."""
        self.repeat = f"{base}:repeat"
        """Zset: keys of repeatable specs, scored by their next fire."""
        self.events = f"{base}:events"
        """Stream: what happened, in plain text."""
        self.promoter_lock = f"{base}:promoter:lock"
        self.scheduler_lock = f"{base}:scheduler:lock"
        self.paused = f"{base}:paused"
        """String: there while the queue is paused."""
        self.limiter = f"{base}:tambo:limiter"
        """Hash: how many jobs may still start, and until when that counts.

        Newer releases of the engine keep a bucket of other fields under ``:limiter``.
        """

    def spec(self, key: str) -> str:
        """Hash: the repeatable spec *key*, and how often it has fired."""
        return f"{self._base}:repeat:spec:{key}"

    def result(self, id: str) -> str:
        """String: what the handler of job *id* returned."""
        return f"{self._base}:result:{id}"

    def marker(self, id: str) -> str:
        """String: there while job *id* may not be scheduled again."""
        return f"{self._base}:dlid:{id}"

    def index(self, id: str) -> str:
        """String: the delayed member of job *id*, for whoever cancels it."""
        return f"{self._base}:didx:{id}"

    def progress(self, id: str) -> str:
        """String: how far job *id* has come, 0 to 100."""
        return f"{self._base}:progress:{id}"

    def log(self, id: str) -> str:
        """Stream: lines that the handler of job *id* has logged, in the field ``line``."""
        return f"{self._base}:log:{id}"

    def stalls(self, id: str) -> str:
        """String: how often job *id* stalled, as newer releases of the engine count.

        Scripts that end many jobs are given the key of no id, and put each id behind it.
        """
        return f"{self._base}:stalls:{id}"

    def added(self, id: str) -> str:
        """String: there while job *id* may not be added again, where dedup is strict."""
        return f"{self._base}:added:{id}"

    def window(self, producer: str) -> str:
        """Zset: the last ids of *producer*, for servers without IDMP."""
        return f"{self._base}:idmp:{producer}"

    @property
    def signs(self) -> tuple[str, ...]:
        """What shows who shares the queue: what a script looks at that stores a delayed job.

        The scheduler's lock; a string that keeps for a second what was seen of many consumers; a
        set of our consumers whose names the user chose; a string that is there once no member of
        the page's dialect is left.
        """
        base = self._base
        own = (f"{base}:tambo:{name}" for name in ("consumers", "workers", "converted"))
        return self.promoter_lock, self.scheduler_lock, *own

    @property
    def requests(self) -> str:
        """Zset: requests that were carried out lately, so that none counts twice."""
        return self.window("requests")

    @property
    def leases(self) -> str:
        """Set: the names of all leases on the queue."""
        return f"{self._base}:leases"

    def ledger(self, lease: str) -> str:
        """Hash: who has the lease, and which claim is open."""
        return f"{self._base}:lease:{check_lease(lease)}"

    def members(self, lease: str) -> str:
        """List: the jobs of the open claim: MessagePack of entry, digest, id, name and attempt."""
        return f"{self.ledger(lease)}:members"

    def verdicts(self, lease: str) -> str:
        """Hash: what is to become of a job other than its end, by entry."""
        return f"{self.ledger(lease)}:verdicts"

    def fence(self, query: str) -> str:
        """Hash: which chunks of rows *query* has written to the queue, and a digest of each."""
        return f"{self._base}:fence:{query}"

    @property
    def redrives(self) -> str:
        """Set: the ids of all redrives of dead letters."""
        return f"{self._base}:redrives"

    def redrive(self, id: str) -> str:
        """Hash: what a redrive was told, and how far it has come."""
        return f"{self._base}:redrive:{check_lease(id)}"

    def redriven(self, id: str) -> str:
        """Stream: ``from`` and ``to`` of what it moved, and the dead letter as it was."""
        return f"{self.redrive(id)}:moved"

    def move(self, id: str) -> str:
        """Hash: how far a move of the queue's jobs to another place has come."""
        return f"{self._base}:move:{check_lease(id)}"

    def transit(self, id: str) -> str:
        """List: what has left the queue and may not have arrived yet."""
        return f"{self.move(id)}:transit"

    @property
    def traces(self) -> tuple[str, ...]:
        """What a queue is found by, also where only one of them is left."""
        return self.stream, self.delayed, self.repeat, self.dlq, self.events

    @property
    def pattern(self) -> str:
        """Matches every key of the queue, and no other."""
        return _GLOB.sub(r"\\\1", self._base) + ":*"


ANY_QUEUE = "{chasqui:*}:*"
"""Matches every key of every queue."""

ANY_LEASES = "{chasqui:*}:leases"
"""Matches the leases of every queue."""

_LEASED = re.compile(r"\{chasqui:(.+)\}:leases", re.DOTALL)
_QUEUE_OF = re.compile(r"\{chasqui:(.+?)\}:(?:stream|delayed|repeat)", re.DOTALL)
_TRACE_OF = re.compile(r"\{chasqui:(.+?)\}:(?:stream|delayed|repeat|dlq|events)", re.DOTALL)


def queue_of(key: str) -> str | None:
    """Return the queue whose stream, delayed or repeat *key* is; only for finding queues."""
    match = _QUEUE_OF.fullmatch(key)
    return match[1] if match else None


def trace_of(key: str) -> str | None:
    """Return the queue that has *key* among its `Keys.traces`; only for finding what to read."""
    match = _TRACE_OF.fullmatch(key)
    return match[1] if match else None


def leased(key: str) -> str | None:
    """Return the queue whose leases *key* holds; only for finding them."""
    match = _LEASED.fullmatch(key)
    return match[1] if match else None


def check_queue(queue: str) -> str:
    """Return *queue* if it may name a queue; raise `InvalidFormat` if not."""
    if not isinstance(queue, str) or not queue or not _is_text(queue):
        raise InvalidFormat("queue name", queue, "any text that is not empty")
    return queue


def check_lease(lease: str) -> str:
    """Return *lease* if it may name a lease; raise `InvalidFormat` if not."""
    if not isinstance(lease, str) or _LEASE.fullmatch(lease) is None:
        raise InvalidFormat("lease", lease, "1 to 160 of A-Z a-z 0-9 _ - .")
    return lease


def lessee(lease: str) -> str:
    """The consumer in whose name the entries of a lease are pending."""
    return f"spark-{lease}"


def check_job_id(id: str) -> str:
    """Return *id* if it may be a job's; raise `InvalidFormat` if not."""
    if not isinstance(id, str) or not id.strip() or not _is_text(id):
        raise InvalidFormat("job_id", id, "a non-empty, non-whitespace string")
    return id


def check_name(name: str) -> str:
    """Return *name* if a job may be dispatched by it; raise `InvalidFormat` if not."""
    if not isinstance(name, str) or not _is_text(name):
        raise InvalidFormat("job name", name, "text")
    # Most names are short: no need to count their bytes.
    if len(name) * 4 > NAME_BYTES and (size := len(name.encode())) > NAME_BYTES:
        shown = f"{name[:20]}…"
        raise InvalidFormat("job name", shown, f"exceeds {NAME_BYTES}-byte cap (got {size} bytes)")
    return name


def check_page_name(name: str) -> str:
    """Return *name* if the page dialect can hold it in a delayed member; or raise."""
    if (size := len(name.encode())) > PAGE_NAME_BYTES:
        shown = f"{name[:20]}…"
        rule = (
            f"a delayed job's has at most {PAGE_NAME_BYTES} bytes in the page dialect, not {size}"
        )
        raise InvalidFormat("job name", shown, rule)
    if "\0" in name[:3]:
        raise InvalidFormat("job name", name, "a delayed job's does not begin with NUL characters")
    return name


def fits_page(name: str) -> bool:
    """Whether the page dialect can hold *name* in a delayed member."""
    return len(name.encode()) <= PAGE_NAME_BYTES and "\0" not in name[:3]


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
