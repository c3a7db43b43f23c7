"""The exceptions of TamboMQ. All derive from `TamboError`.

TamboError
├── Reject                     raised by a handler: do not retry this message
│   └── UnrecoverableError     the same, by the name ChasquiMQ gives it
├── RetryIn                    raised by a handler: retry this job after a given time
├── CancelJob                  raised by a handler: end this job as cancelled
├── JobTimedOut                a typed job ran for longer than its timeout_s
├── JobProcessDied             the process of a typed job ended while it ran
├── SettingsError              a flag, a variable or a file has an invalid value
├── ProtocolError              bytes or calls that break a protocol
│   ├── LocalProtocolError     our caller broke it
│   │   ├── InvalidFormat      a name or an id that no peer would accept
│   │   ├── InvalidValue       a number outside its range
│   │   ├── InvalidBody        neither text nor bytes
│   │   ├── InvalidPayload     a value that MessagePack cannot encode
│   │   ├── InvalidArguments   arguments that do not fit the function of a typed job
│   │   └── NothingToSet       no attribute to set was given
│   └── RemoteProtocolError    the peer broke it
├── QueueError                 a queue cannot do what was asked
│   ├── QueueNotFound
│   ├── MessageNotFound        no message or job of a queue has this id
│   ├── QueueExists
│   ├── MessageTooLong
│   ├── QueueCorrupt           its keys do not hold a queue of this protocol
│   ├── BatchIncomplete        part of a batch failed
│   ├── QueueFull              one of its bounds takes no more
│   ├── JournalFull            its journal is full of unread entries
│   ├── LimitReached           a consumer has the maximum number of peers or keys
│   ├── QueueBusy              the operation would remove running jobs
│   ├── JobBusy                the job to be removed is running
│   ├── ForeignLeader          another engine leads it and could not read this
│   ├── JobFailed              a job whose result was awaited is dead
│   │   └── JobCancelled       it was cancelled or deleted
│   ├── HandlersStuck          a worker's threads all run handlers that have timed out
│   ├── LeaseTaken             a live query holds the lease
│   ├── LeaseLost              another query has taken over the lease
│   └── EntriesLost            entries of a query were trimmed or taken by others
├── ActionRefused              the console cannot do what was asked to a queue or message
├── AccessError                who a caller is, or what it may do, forbids a call
│   ├── NotAuthenticated       it has no valid token or certificate
│   └── AccessDenied           its user does not have the right for this queue
├── BrokerError                a GOMQ or KqueueMsgQ server cannot do what was asked
│   ├── BrokerUnavailable      it cannot be reached, or it went away
│   └── BrokerRefused          it answers with a status that is not OK
├── ComponentFailed            a component of `tambo serve` cannot be started or kept running
├── BackupError                a backup cannot be written, read or restored
├── LakeError                  the files of a lake cannot be read or written
│   └── LakeConflict           another has changed the same files meanwhile
└── StoreError                 Redis cannot do what was asked
    ├── StoreUnavailable       it cannot be reached; nothing was done
    │   ├── StoreReadOnly      it refuses writes for now; nothing was done
    │   └── ReplyLost          the connection broke; the operation may have been done
    ├── StoreFull              it is out of memory; nothing was done
    │   └── AlarmRaised        memory, disk or a queue is nearly full; nothing was done
    ├── StoreRefused           the login failed, or an ACL forbids the operation
    ├── NotDurable             it was done, but is not confirmed as durable in time
    ├── DurabilityUnsupported  it cannot confirm what is durable; nothing was done
    ├── WrongType              a key holds a value of another type
    └── EmbeddedError          the bundled server cannot run
        ├── PortTaken
        └── DataDirBusy

`code` is the name of an error in the RSMQ specification, where it has one.
"""

from __future__ import annotations

from typing import Any

from tambomq.text import format_address

MAX_RETRY_IN_S = 30 * 24 * 3600
"""As for delays: 30 days."""

# ── all errors ───────────────────────────────────────────────────────────────


class TamboError(Exception):
    """Base of every error raised on purpose."""

    code: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without `__init__`, whose arguments are not those of the text."""
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[TamboError], args: tuple[Any, ...]) -> TamboError:
    error = kind.__new__(kind)
    error.args = args
    return error


class Reject(TamboError):
    """Raised by a handler: dead-letter its message without retries. The text is the reason."""


class UnrecoverableError(Reject, RuntimeError):
    """Raised by a handler: dead-letter its job without further retries."""


class RetryIn(TamboError):
    """Raised by a handler: run its job again after *seconds*, not after its backoff.

    The run counts as an attempt: after the last one the job goes to the dead-letter queue. The
    text is the reason.
    """

    def __init__(self, seconds: float, reason: str = "") -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise InvalidValue("seconds", seconds, "a number")
        if not 0 <= seconds <= MAX_RETRY_IN_S:
            raise InvalidValue("seconds", seconds, f"between 0 and {MAX_RETRY_IN_S}")
        super().__init__(reason or f"asked to run again in {seconds:g} s")
        self.seconds, self.reason = seconds, reason


class CancelJob(TamboError):
    """Raised by a handler: end its job as cancelled, with no retry and no dead letter.

    The text is the reason.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class JobTimedOut(TamboError, TimeoutError):
    """A typed job ran for longer than its ``timeout_s``; it is retried."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"the run took longer than timeout_s={timeout_s:g}")
        self.timeout_s = timeout_s


class JobProcessDied(TamboError):
    """The process in which a typed job ran has ended; the job is retried."""

    def __init__(self, ending: str) -> None:
        super().__init__(f"the process of the job {ending}")
        self.ending = ending


class SettingsError(TamboError):
    """A flag, an environment variable or a file has an invalid value."""


class ComponentFailed(TamboError):
    """A component of ``tambo serve`` cannot be started or kept running."""

    def __init__(self, component: str, why: object) -> None:
        super().__init__(f"{component} cannot be served: {why}")
        self.component = component


# ── protocols ────────────────────────────────────────────────────────────────


class ProtocolError(TamboError):
    """A rule of a protocol was broken."""


class LocalProtocolError(ProtocolError, ValueError):
    """The caller asked for what the protocol forbids."""


class InvalidFormat(LocalProtocolError):
    """A name or an id is not of the form the protocol demands."""

    code = "invalidFormat"

    def __init__(self, what: str, value: object, rule: str) -> None:
        super().__init__(f"{what} {value!r} is not valid: {rule}")
        self.what, self.value, self.rule = what, value, rule
        if value in (None, ""):
            self.code = "missingParameter"


class InvalidValue(LocalProtocolError):
    """A number is outside its range."""

    code = "invalidValue"

    def __init__(self, what: str, value: object, rule: str) -> None:
        super().__init__(f"{what} must be {rule}, not {value!r}")
        self.what, self.value, self.rule = what, value, rule


class InvalidBody(LocalProtocolError):
    """A body is neither bytes nor text that UTF-8 can encode."""

    code = "messageNotString"

    def __init__(self, body: object) -> None:
        super().__init__(
            "the body contains a lone surrogate and cannot be encoded as UTF-8"
            if isinstance(body, str)
            else f"a body is str or bytes, not {type(body).__name__}"
        )


class InvalidPayload(LocalProtocolError):
    """A value cannot be written as MessagePack."""

    def __init__(self, value: object, why: object) -> None:
        super().__init__(f"a payload of type {type(value).__name__} cannot be encoded: {why}")


class InvalidArguments(LocalProtocolError, TypeError):
    """Arguments do not fit the function of a typed job; nothing was added."""

    def __init__(self, job: str, why: str) -> None:
        super().__init__(f"the arguments do not fit job {job!r}: {why}")
        self.job, self.why = job, why


class NothingToSet(LocalProtocolError):
    """No attribute to set was given."""

    code = "noAttributeSupplied"

    def __init__(self, *names: str) -> None:
        *most, last = names or ("vt", "delay", "maxsize")
        super().__init__(f"give at least one of {', '.join(most)} and {last}")


class RemoteProtocolError(ProtocolError):
    """The peer sent what the protocol forbids."""


# ── Redis ────────────────────────────────────────────────────────────────────


class StoreError(TamboError):
    """Redis cannot do what was asked.

    *kind* is the first word of the server's error reply, such as ``NOGROUP`` or ``WRONGTYPE``.
    Two replies that begin with ``ERR`` have a kind of our own: ``NOKEY`` ("no such key") and
    ``MAXCLIENTS`` ("max number of clients reached"). It is empty where no server replied.
    """

    kind: str = ""


class StoreUnavailable(StoreError):
    """Redis cannot be reached; the operation was not done."""


class StoreReadOnly(StoreUnavailable):
    """Redis answers but takes no writes for now; the operation was not done.

    Its disk is full (MISCONF), too few replicas are connected (NOREPLICAS), or it is a replica
    (READONLY). Reads work, and the operation may be tried again.
    """


class ReplyLost(StoreUnavailable):
    """The connection broke before the reply came; the operation may have been done."""


class StoreFull(StoreError):
    """Redis is out of memory; the operation was not done."""


class AlarmRaised(StoreFull):
    """An alarm stops producers: memory, disk or a queue is nearly full; nothing was stored.

    Consumers go on. The alarm is cleared by itself once there is space again.
    """


class StoreRefused(StoreError):
    """The login failed, or an ACL forbids the operation."""


class NotDurable(StoreError):
    """The operation was done, but the server has not confirmed in time that it is durable.

    It is in the server's memory, and lost only if the server fails before it is durable after all.
    *acknowledged* of *wanted* copies are confirmed; *result* is what the operation would have
    returned.
    """

    def __init__(
        self,
        level: str,
        why: str,
        *,
        acknowledged: int = 0,
        wanted: int = 1,
        again: str = "sent again without an id, it is stored twice",
    ) -> None:
        super().__init__(
            f"it is stored in memory, but not confirmed with durable={level!r}: {why}; {again}"
        )
        self.level, self.why = level, why
        self.acknowledged, self.wanted = acknowledged, wanted
        self.result: object = None


class DurabilityUnsupported(StoreError):
    """The server cannot confirm this level of durability; nothing was done."""

    def __init__(self, level: str, why: str) -> None:
        super().__init__(f"the server cannot confirm durable={level!r}: {why}")
        self.level, self.why = level, why


class WrongType(StoreError):
    """A key holds a value of another type than this protocol stores there."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__(f"one of the keys {', '.join(keys)} holds a value of another type")
        self.keys = keys


class EmbeddedError(StoreError):
    """The bundled server cannot run."""


class PortTaken(EmbeddedError):
    """Something else listens where the bundled server should."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"{format_address(host, port)} is taken")
        self.host, self.port = host, port


class DataDirBusy(EmbeddedError):
    """Another process serves from this data directory."""

    def __init__(self, path: str, owner: str) -> None:
        super().__init__(f"{path} is in use by {owner}")
        self.path, self.owner = path, owner


# ── queues ───────────────────────────────────────────────────────────────────


class QueueError(TamboError):
    """A queue cannot do what was asked."""

    def __init__(self, queue: str, message: str) -> None:
        super().__init__(message)
        self.queue = queue


class QueueNotFound(QueueError):
    """No queue has this name."""

    code = "queueNotFound"

    def __init__(self, queue: str) -> None:
        super().__init__(queue, f"queue {queue!r} does not exist")


class MessageNotFound(QueueError):
    """No message or job of a queue has this id, and nothing recorded says what became of it."""

    def __init__(self, queue: str, id: str, why: str = "") -> None:
        why = why or "it never had, or what it knew of it is gone; compare the id with a list"
        super().__init__(queue, f"queue {queue!r} has no message {id!r}: {why}")
        self.id = id


class QueueExists(QueueError):
    """A queue already has this name."""

    code = "queueExists"

    def __init__(self, queue: str) -> None:
        super().__init__(queue, f"queue {queue!r} already exists")


class MessageTooLong(QueueError):
    """A body has more bytes than the queue takes."""

    code = "messageTooLong"

    def __init__(self, queue: str, size: int, maxsize: int) -> None:
        super().__init__(
            queue, f"a message of {size} bytes exceeds the {maxsize} that queue {queue!r} takes"
        )
        self.size, self.maxsize = size, maxsize


class QueueCorrupt(QueueError):
    """The queue's keys do not hold a queue of this protocol."""

    def __init__(self, queue: str, detail: str) -> None:
        super().__init__(queue, f"queue {queue!r} is damaged: {detail}")
        self.detail = detail


class BatchIncomplete(QueueError):
    """Part of a batch failed; *ids* has a message's id in its place, or `None` if it failed."""

    def __init__(self, queue: str, ids: list[str | None]) -> None:
        done = len(ids) - ids.count(None)
        super().__init__(queue, f"{done} of {len(ids)} messages reached queue {queue!r}")
        self.ids = ids


class QueueFull(QueueError):
    """A queue takes no more because of a bound; nothing was added.

    *bound* is its name, *cap* its value, and *held* what the queue holds of it.
    """

    def __init__(
        self, queue: str, cap: int, *, bound: str = "max_stream_len", held: int | None = None
    ) -> None:
        held = cap if held is None else held
        what, way_out = "jobs", 'lose the oldest with overflow="trim"'
        if bound != "max_stream_len":
            what = "bytes" if bound == "max_bytes" else "messages"
            way_out = 'dead-letter the rest with overflow="dead-letter"'
        of = "" if bound == "max_stream_len" else f" of {cap}"
        super().__init__(
            queue,
            f"queue {queue!r} holds {held}{of} {what} and takes no more: let workers catch up, "
            f"raise {bound}, or {way_out}",
        )
        self.cap, self.bound, self.held = cap, bound, held


class JournalFull(QueueError):
    """A queue's journal is full of unread entries; nothing was stored."""

    def __init__(self, queue: str, max_entries: int, max_bytes: int) -> None:
        full = f"the journal of queue {queue!r} is full: {max_entries} entries or {max_bytes} bytes"
        super().__init__(queue, f"{full}; let its readers commit, or raise its bounds")
        self.max_entries, self.max_bytes = max_entries, max_bytes


class LimitReached(QueueError):
    """A consumer, key or connection has reached a maximum; nothing was added."""

    def __init__(self, owner: str, limit: int, what: str) -> None:
        super().__init__(owner, f"{owner} has {limit} {what}, which is the maximum")
        self.limit, self.what = limit, what


class QueueBusy(QueueError):
    """The operation would remove running jobs; nothing was done."""

    def __init__(self, queue: str, active: int) -> None:
        super().__init__(
            queue,
            f"{active} jobs of queue {queue!r} are running: stop the workers, or use force",
        )
        self.active = active


class JobBusy(QueueError):
    """The job to be removed is running; nothing was done."""

    def __init__(self, queue: str, id: str, worker: str) -> None:
        super().__init__(
            queue,
            f"job {id!r} of queue {queue!r} is running in worker {worker!r}: "
            "remove it when it has ended",
        )
        self.id, self.worker = id, worker


class ForeignLeader(QueueError):
    """Another engine leads a queue and could not read what was to be stored; nothing was."""

    def __init__(self, queue: str, holder: str) -> None:
        super().__init__(
            queue,
            f"queue {queue!r} is led by {holder!r}, another engine, which cannot read a delayed "
            'job in the page dialect: use dialect="engine"',
        )
        self.holder = holder


class JobFailed(QueueError):
    """A job whose result was awaited is dead.

    *error_type*, *detail* and *traceback* describe what its handler raised; empty if unknown.
    """

    _outcome = "is dead"

    def __init__(
        self,
        queue: str,
        id: str,
        reason: str,
        *,
        error_type: str = "",
        detail: str = "",
        traceback: str = "",
    ) -> None:
        cause = ": ".join(filter(None, (self._outcome, reason, error_type, detail)))
        super().__init__(queue, f"job {id!r} of queue {queue!r} {cause}")
        self.id, self.reason = id, reason
        self.error_type, self.detail, self.traceback = error_type, detail, traceback
        if traceback:
            self.add_note(f"In its worker:\n{traceback}")


class JobCancelled(JobFailed):
    """A job whose result was awaited was cancelled, or deleted before it ran."""

    _outcome = "was cancelled"


class HandlersStuck(QueueError):
    """All threads of a worker run handlers that have timed out, so it can do nothing more.

    *threads* has the message id for the name of each thread.
    """

    def __init__(self, queue: str, threads: dict[str, str]) -> None:
        shown = ", ".join(f"{id} in {thread}" for thread, id in sorted(threads.items()))
        super().__init__(
            queue,
            f"all {len(threads)} threads of the worker on queue {queue!r} run handlers that have "
            f"timed out and do not end ({shown}): restart the process, and give blocking "
            "calls in the handler timeouts of their own",
        )
        self.threads = threads


# ── leases ───────────────────────────────────────────────────────────────────


class LeaseTaken(QueueError):
    """A live query holds the lease."""

    def __init__(self, queue: str, lease: str, holder: str) -> None:
        held = f"lease {lease!r} on queue {queue!r} is held by {holder}, which is alive"
        super().__init__(queue, f"{held}: stop that query, or name another lease")
        self.lease, self.holder = lease, holder


class LeaseLost(QueueError):
    """A query was considered dead and replaced, or its lease was released."""

    def __init__(self, queue: str, lease: str, why: str) -> None:
        lost = f"lease {lease!r} on queue {queue!r} is lost: {why}"
        super().__init__(queue, f"{lost}; this query changes nothing any more")
        self.lease = lease


class EntriesLost(QueueError):
    """Entries that a query was to read were trimmed, or taken by others."""


# ── brokers and servers ──────────────────────────────────────────────────────


class ActionRefused(TamboError):
    """The console cannot do this to a queue or message, or not any more."""


class AccessError(TamboError):
    """Who a caller is, or what it may do, forbids a call to one of our servers."""


class NotAuthenticated(AccessError):
    """A caller has no token or client certificate that is valid."""


class AccessDenied(AccessError):
    """The user of a caller does not have the right for a queue."""

    def __init__(self, user: str, right: str, queue: str) -> None:
        super().__init__(f"user {user} does not have the right to {right} for {queue}")
        self.user, self.right, self.queue = user, right, queue


class BrokerError(TamboError):
    """A GOMQ or KqueueMsgQ server cannot do what was asked."""


class BrokerUnavailable(BrokerError):
    """A server cannot be reached, or it went away; what was under way may be lost."""

    def __init__(self, address: str, why: object) -> None:
        super().__init__(f"no server at {address}: {why}")
        self.address = address


class BrokerRefused(BrokerError):
    """A server answers with a status that is not OK; *status* is its name in gRPC."""

    def __init__(self, call: str, status: str, details: str) -> None:
        super().__init__(f"{call}: {status}: {details}")
        self.call, self.status, self.details = call, status, details


# ── files ─────────────────────────────────────────────────────────────────


class BackupError(TamboError):
    """A backup cannot be written, read or restored; what was there before still is."""


class LakeError(TamboError):
    """The files of a lake cannot be read or written; what was in it is still there."""


class LakeConflict(LakeError):
    """Another has changed the same files of a lake meanwhile; nothing was done."""
