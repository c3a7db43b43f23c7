"""Every error TamboMQ raises on purpose.

TamboError
├── Reject                     a handler's verdict: never try this message again
│   └── UnrecoverableError     the same verdict, by the name ChasquiMQ gives it
├── SettingsError              a flag, a variable or a file asks for the impossible
├── ProtocolError              bytes or calls that break a protocol
│   ├── LocalProtocolError     our caller broke it
│   │   ├── InvalidFormat      a name or an id that no peer would accept
│   │   ├── InvalidValue       a number outside its range
│   │   ├── InvalidBody        neither text nor bytes
│   │   ├── InvalidPayload     a value that no MessagePack can carry
│   │   └── NothingToSet       a change that changes nothing
│   └── RemoteProtocolError    the peer broke it
├── QueueError                 a queue cannot do what was asked
│   ├── QueueNotFound
│   ├── QueueExists
│   ├── MessageTooLong
│   ├── QueueCorrupt           what is stored there is not a queue of this protocol
│   ├── BatchIncomplete        part of a batch was done, part of it failed
│   ├── QueueFull              it holds as many jobs as it may
│   ├── JournalFull            its journal holds as much as it may, unread
│   ├── QueueBusy              jobs are running that the operation would take away
│   ├── ForeignLeader          another engine leads it, which could not read this
│   ├── JobFailed              a job whose result was awaited is dead
│   ├── LeaseTaken             another query has the lease, and is alive
│   ├── LeaseLost              another has the lease that was this query's
│   └── EntriesLost            what a query was to read is gone, or others have had it
├── BrokerError                a GOMQ or KqueueMsgQ server cannot do what was asked
│   ├── BrokerUnavailable      it cannot be reached, or it went away
│   └── BrokerRefused          it answers with a status that is not OK
├── DoorFailed                 a door of `tambo serve` cannot be opened, or not kept open
├── LakeError                  the files of a lake cannot be read or written
│   └── LakeConflict           another has changed the same files meanwhile
└── StoreError                 Redis cannot do what was asked
    ├── StoreUnavailable       it cannot be reached; nothing was done
    │   └── ReplyLost          it went away in between; the operation may have been done
    ├── StoreFull              it is out of memory; nothing was done
    ├── StoreRefused           it does not let us in, or not to this key
    ├── WrongType              a key holds something else than this protocol keeps there
    └── EmbeddedError          the bundled server cannot run
        ├── PortTaken
        └── DataDirBusy

`code` is the name of an error in the RSMQ specification, where it has one.
"""

from __future__ import annotations


class TamboError(Exception):
    """Base of every error raised on purpose."""

    code: str = ""


class Reject(TamboError):
    """Raised by a handler: its message is dead, now. The text is the reason kept with it."""


class UnrecoverableError(Reject, RuntimeError):
    """Raised by a handler: its job is dead, now, without further retries."""


class SettingsError(TamboError):
    """A flag, an environment variable or a file asks for the impossible."""


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
    """A body is neither text nor bytes."""

    code = "messageNotString"

    def __init__(self, body: object) -> None:
        what = "text that no UTF-8 can carry" if isinstance(body, str) else type(body).__name__
        super().__init__(f"a body is str or bytes, not {what}")


class InvalidPayload(LocalProtocolError):
    """A value cannot be written as MessagePack."""

    def __init__(self, value: object, why: object) -> None:
        super().__init__(f"a payload of type {type(value).__name__} cannot be encoded: {why}")


class NothingToSet(LocalProtocolError):
    """No attribute to set was given."""

    code = "noAttributeSupplied"

    def __init__(self) -> None:
        super().__init__("give at least one of vt, delay and maxsize")


class RemoteProtocolError(ProtocolError):
    """The peer sent what the protocol forbids."""


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
    """What is stored under the queue's keys is not a queue of this protocol."""

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
    """A queue holds as many jobs as it may; nothing was added."""

    def __init__(self, queue: str, cap: int) -> None:
        super().__init__(
            queue,
            f"queue {queue!r} holds {cap} jobs and takes no more: let workers catch up, "
            'raise max_stream_len, or lose the oldest with overflow="trim"',
        )
        self.cap = cap


class JournalFull(QueueError):
    """A queue's journal holds as much unread as it may; nothing was stored."""

    def __init__(self, queue: str, max_entries: int, max_bytes: int) -> None:
        told = f"the journal of queue {queue!r} is full: {max_entries} entries or {max_bytes} bytes"
        super().__init__(queue, f"{told}; let its readers commit, or raise its bounds")
        self.max_entries, self.max_bytes = max_entries, max_bytes


class QueueBusy(QueueError):
    """Jobs are running that the operation would take away."""

    def __init__(self, queue: str, active: int) -> None:
        super().__init__(
            queue,
            f"{active} jobs of queue {queue!r} are in workers' hands: stop them, or use force",
        )
        self.active = active


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
    """A job whose result was awaited is dead."""

    def __init__(self, queue: str, id: str, reason: str) -> None:
        super().__init__(queue, f"job {id!r} of queue {queue!r} is dead: {reason}")
        self.id, self.reason = id, reason


class LeaseTaken(QueueError):
    """Another query has the lease, and is alive."""

    def __init__(self, queue: str, lease: str, holder: str) -> None:
        told = f"lease {lease!r} on queue {queue!r} is held by {holder}, which is alive"
        super().__init__(queue, f"{told}: stop that query, or name another lease")
        self.lease, self.holder = lease, holder


class LeaseLost(QueueError):
    """A query was thought dead and replaced, or its lease was given up."""

    def __init__(self, queue: str, lease: str, why: str) -> None:
        told = f"lease {lease!r} on queue {queue!r} is lost: {why}"
        super().__init__(queue, f"{told}; this query changes nothing any more")
        self.lease = lease


class EntriesLost(QueueError):
    """What a query was to read is gone, or others have had it."""


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


class DoorFailed(TamboError):
    """A door of ``tambo serve`` cannot be opened, or not kept open."""

    def __init__(self, door: str, why: object) -> None:
        super().__init__(f"{door} cannot be served: {why}")
        self.door = door


class LakeError(TamboError):
    """The files of a lake cannot be read or written; what was in it is still there."""


class LakeConflict(LakeError):
    """Another has changed the same files of a lake meanwhile; nothing was done."""


class StoreError(TamboError):
    """Redis cannot do what was asked."""


class StoreUnavailable(StoreError):
    """Redis cannot be reached; the operation was not done."""


class ReplyLost(StoreUnavailable):
    """The connection broke before the reply came; the operation may have been done."""


class StoreFull(StoreError):
    """Redis is out of memory; the operation was not done."""


class StoreRefused(StoreError):
    """Redis does not let us in, or not to this key."""


class WrongType(StoreError):
    """A key holds something else than this protocol keeps there."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__(f"one of the keys {', '.join(keys)} holds a value of another type")
        self.keys = keys


class EmbeddedError(StoreError):
    """The bundled server cannot run."""


class PortTaken(EmbeddedError):
    """Something else listens where the bundled server should."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"{host}:{port} is taken")
        self.host, self.port = host, port


class DataDirBusy(EmbeddedError):
    """Another process serves from this data directory."""

    def __init__(self, path: str, owner: str) -> None:
        super().__init__(f"{path} is in use by {owner}")
        self.path, self.owner = path, owner
