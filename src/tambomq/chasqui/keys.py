"""The Redis keys of ChasquiMQ, and the checks of names. No other module spells a key.

All keys of a queue begin with the same hash tag, so on a cluster they are in
one slot. The fields::

    stream   d n                                     envelope, dispatch name
    dlq      d n source_id reason detail             and where it was, why it is here,
             error_type traceback                    and what its handler raised
    events   e id ts n …                             see docs/protocols/chasqui.md
    spec     spec fired skipped_to                   of repeat:spec:<key>, a hash
    lease    owner label until hidden_until          its holder, until when (ms)
             acked claim mark released lapsed        and the state of its claim

The scripts spell the fields too; a field that changes here changes there.
"""

from __future__ import annotations

import re

from tambomq.errors import InvalidFormat

GROUP = "default"
RETURNED = "tambo-returned"
"""The consumer that entries are assigned to when a worker releases them."""
NAME_BYTES = 256
"""Maximum length of a dispatch name, in bytes."""
PAGE_NAME_BYTES = 255
"""The same in a delayed member of the page dialect, whose length prefix is a single byte."""

PAYLOAD, NAME = b"d", b"n"

_LEASE = re.compile(r"[A-Za-z0-9_.-]{1,160}", re.ASCII)
_GLOB = re.compile(r"([\\*?\[\]^])")


class Keys:
    """The keys of one queue."""

    __slots__ = (
        "_base",
        "cancels",
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
        """Stream: waiting and active jobs."""
        self.dlq = f"{base}:dlq"
        """Stream: dead letters."""
        self.delayed = f"{base}:delayed"
        """Zset: delayed jobs, scored by the millisecond they are due."""
        self.repeat = f"{base}:repeat"
        """Zset: keys of repeatable specs, scored by their next fire."""
        self.events = f"{base}:events"
        """Stream: events, in plain text."""
        self.promoter_lock = f"{base}:promoter:lock"
        self.scheduler_lock = f"{base}:scheduler:lock"
        self.paused = f"{base}:paused"
        """String: exists while the queue is paused."""
        self.limiter = f"{base}:tambo:limiter"
        """Hash: how many jobs may still start in this window, and when the window ends.

        Newer releases of the engine use ``:limiter``, with other fields.
        """

        self.cancels = f"{base}:tambo:cancels"
        """Stream, and channel that says it has grown: entries cancelled while a worker had them."""

    def spec(self, key: str) -> str:
        """Hash: the repeatable spec *key*, and how often it has fired."""
        return f"{self._base}:repeat:spec:{key}"

    def result(self, id: str) -> str:
        """String: the result of job *id*."""
        return f"{self._base}:result:{id}"

    def marker(self, id: str) -> str:
        """String: exists while job *id* must not be scheduled again."""
        return f"{self._base}:dlid:{id}"

    def index(self, id: str) -> str:
        """String: the delayed member of job *id*, so that it can be cancelled by id."""
        return f"{self._base}:didx:{id}"

    def progress(self, id: str) -> str:
        """String: the progress of job *id*, 0 to 100, or any other JSON."""
        return f"{self._base}:progress:{id}"

    def log(self, id: str) -> str:
        """Stream: lines that the handler of job *id* has logged, in the field ``line``."""
        return f"{self._base}:log:{id}"

    def stalls(self, id: str) -> str:
        """String: how often job *id* stalled, written by newer releases of the engine.

        Scripts that end many jobs receive the key of an empty id and append each id to it.
        """
        return f"{self._base}:stalls:{id}"

    def added(self, id: str) -> str:
        """String: exists while job *id* must not be added again, with strict dedup."""
        return f"{self._base}:added:{id}"

    def throttle(self, id: str) -> str:
        """String: exists while a throttled job *id* is not added again."""
        return f"{self._base}:tambo:throttle:{id}"

    def window(self, producer: str) -> str:
        """Zset: the last ids of *producer*, for servers without IDMP."""
        return f"{self._base}:idmp:{producer}"

    @property
    def signs(self) -> tuple[str, ...]:
        """The keys that show whether a released engine shares the queue.

        Scripts that store a delayed job read them: both leader locks; a string that caches for a
        second what many consumers' names show; a set of our consumers whose names the user chose;
        a string that exists once no delayed member is left in the page dialect.
        """
        base = self._base
        own = (f"{base}:tambo:{name}" for name in ("consumers", "workers", "converted"))
        return self.promoter_lock, self.scheduler_lock, *own

    @property
    def unless_queued(self) -> str:
        """Hash: the specs that skip fires while their last job is in the queue, by their keys.

        The value is a SHA-1 digest of the stored spec, in hex, and the id of that job.
        """
        return f"{self._base}:tambo:unless_queued"

    @property
    def previous(self) -> str:
        """Hash: where these last jobs are, by their ids: a stream entry, or a delayed member."""
        return f"{self._base}:tambo:previous"

    @property
    def requests(self) -> str:
        """Zset: requests that were executed recently, so that a repeated one has no effect."""
        return self.window("requests")

    @property
    def leases(self) -> str:
        """Set: the names of all leases on the queue."""
        return f"{self._base}:leases"

    def ledger(self, lease: str) -> str:
        """Hash: the holder of the lease, and its open claim."""
        return f"{self._base}:lease:{check_lease(lease)}"

    def members(self, lease: str) -> str:
        """List: the jobs of the open claim: MessagePack of entry, digest, id, name and attempt."""
        return f"{self.ledger(lease)}:members"

    def verdicts(self, lease: str) -> str:
        """Hash: decisions about jobs of the open claim other than completion, by entry."""
        return f"{self.ledger(lease)}:verdicts"

    def fence(self, query: str) -> str:
        """Hash: which chunks of rows *query* has written to the queue, and a digest of each."""
        return f"{self._base}:fence:{query}"

    @property
    def redrives(self) -> str:
        """Set: the ids of all redrives of dead letters."""
        return f"{self._base}:redrives"

    def redrive(self, id: str) -> str:
        """Hash: the options of a redrive, and its progress."""
        return f"{self._base}:redrive:{check_lease(id)}"

    def redriven(self, id: str) -> str:
        """Stream: the jobs it moved, with the ids ``from`` and ``to`` and the original letter."""
        return f"{self.redrive(id)}:moved"

    def discarded(self, id: str) -> str:
        """Stream: dead letters that were deleted and can be restored for a while."""
        return f"{self._base}:tambo:discarded:{check_lease(id)}"

    def move(self, id: str) -> str:
        """Hash: the progress of a move of the queue's jobs to another queue."""
        return f"{self._base}:move:{check_lease(id)}"

    def transit(self, id: str) -> str:
        """List: jobs that have left the queue and may not have arrived yet."""
        return f"{self.move(id)}:transit"

    @property
    def traces(self) -> tuple[str, ...]:
        """The keys by which a queue is found, even if only one of them is left."""
        return self.stream, self.delayed, self.repeat, self.dlq, self.events

    @property
    def pattern(self) -> str:
        """A glob that matches every key of the queue, and no other."""
        return _GLOB.sub(r"\\\1", self._base) + ":*"


ANY_QUEUE = "{chasqui:*}:*"
"""A glob that matches every key of every queue."""

ANY_LEASES = "{chasqui:*}:leases"
"""A glob that matches the leases of every queue."""

_LEASED = re.compile(r"\{chasqui:(.+)\}:leases", re.DOTALL)
_QUEUE_OF = re.compile(r"\{chasqui:(.+?)\}:(?:stream|delayed|repeat)", re.DOTALL)
_TRACE_OF = re.compile(r"\{chasqui:(.+?)\}:(?:stream|delayed|repeat|dlq|events)", re.DOTALL)


def queue_of(key: str) -> str | None:
    """Return the queue that has *key* as its stream, delayed or repeat; `None` if none has."""
    match = _QUEUE_OF.fullmatch(key)
    return match[1] if match else None


def trace_of(key: str) -> str | None:
    """Return the queue that has *key* among its `Keys.traces`; `None` if none has."""
    match = _TRACE_OF.fullmatch(key)
    return match[1] if match else None


def leased(key: str) -> str | None:
    """Return the queue that has *key* as its set of leases; `None` if none has."""
    match = _LEASED.fullmatch(key)
    return match[1] if match else None


def check_queue(queue: str) -> str:
    """Return *queue* if it is a valid name; raise `InvalidFormat` if not."""
    if not isinstance(queue, str) or not queue or not _is_text(queue):
        raise InvalidFormat("queue name", queue, "any text that is not empty")
    return queue


def check_lease(lease: str) -> str:
    """Return *lease* if it is a valid name; raise `InvalidFormat` if not."""
    if not isinstance(lease, str) or _LEASE.fullmatch(lease) is None:
        raise InvalidFormat("lease", lease, "1 to 160 of A-Z a-z 0-9 _ - .")
    return lease


def lessee(lease: str) -> str:
    """Return the consumer that the entries of a lease are assigned to."""
    return f"spark-{lease}"


def check_job_id(id: str) -> str:
    """Return *id* if it is a valid job id; raise `InvalidFormat` if not."""
    if not isinstance(id, str) or not id.strip() or not _is_text(id):
        raise InvalidFormat("job_id", id, "a non-empty, non-whitespace string")
    return id


def check_name(name: str) -> str:
    """Return *name* if it is a valid dispatch name; raise `InvalidFormat` if not."""
    if not isinstance(name, str) or not _is_text(name):
        raise InvalidFormat("job name", name, "text")
    # A character has at most 4 bytes, so short names need not be encoded to be measured.
    if len(name) * 4 > NAME_BYTES and (size := len(name.encode())) > NAME_BYTES:
        shown = f"{name[:20]}…"
        raise InvalidFormat("job name", shown, f"exceeds {NAME_BYTES}-byte cap (got {size} bytes)")
    return name


def check_page_name(name: str) -> str:
    """Return *name* if a delayed member of the page dialect can hold it; raise if not."""
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
    """Return whether a delayed member of the page dialect can hold *name*."""
    return len(name.encode()) <= PAGE_NAME_BYTES and "\0" not in name[:3]


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
