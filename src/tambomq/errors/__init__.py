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
│   ├── LimitReached           a consumer has as many peers or keys as it may
│   ├── QueueBusy              jobs are running that the operation would take away
│   ├── JobBusy                a worker has the job that was to be removed
│   ├── ForeignLeader          another engine leads it, which could not read this
│   ├── JobFailed              a job whose result was awaited is dead
│   ├── HandlersStuck          a worker's threads all run handlers that have timed out
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
    │   ├── StoreReadOnly      it takes no writes for now; nothing was done
    │   └── ReplyLost          it went away in between; the operation may have been done
    ├── StoreFull              it is out of memory; nothing was done
    ├── StoreRefused           it does not let us in, or not to this key
    ├── WrongType              a key holds something else than this protocol keeps there
    └── EmbeddedError          the bundled server cannot run
        ├── PortTaken
        └── DataDirBusy

`code` is the name of an error in the RSMQ specification, where it has one.

Each is imported from here; the files beside this one are where it is written.
"""

from __future__ import annotations

from tambomq.errors.broker import BrokerError, BrokerRefused, BrokerUnavailable
from tambomq.errors.common import DoorFailed, Reject, SettingsError, TamboError, UnrecoverableError
from tambomq.errors.lake import LakeConflict, LakeError
from tambomq.errors.lease import EntriesLost, LeaseLost, LeaseTaken
from tambomq.errors.protocol import (
    InvalidBody,
    InvalidFormat,
    InvalidPayload,
    InvalidValue,
    LocalProtocolError,
    NothingToSet,
    ProtocolError,
    RemoteProtocolError,
)
from tambomq.errors.queue import (
    BatchIncomplete,
    ForeignLeader,
    HandlersStuck,
    JobBusy,
    JobFailed,
    JournalFull,
    LimitReached,
    MessageTooLong,
    QueueBusy,
    QueueCorrupt,
    QueueError,
    QueueExists,
    QueueFull,
    QueueNotFound,
)
from tambomq.errors.store import (
    DataDirBusy,
    EmbeddedError,
    PortTaken,
    ReplyLost,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
    WrongType,
)

__all__ = [
    "BatchIncomplete",
    "BrokerError",
    "BrokerRefused",
    "BrokerUnavailable",
    "DataDirBusy",
    "DoorFailed",
    "EmbeddedError",
    "EntriesLost",
    "ForeignLeader",
    "HandlersStuck",
    "InvalidBody",
    "InvalidFormat",
    "InvalidPayload",
    "InvalidValue",
    "JobBusy",
    "JobFailed",
    "JournalFull",
    "LakeConflict",
    "LakeError",
    "LeaseLost",
    "LeaseTaken",
    "LimitReached",
    "LocalProtocolError",
    "MessageTooLong",
    "NothingToSet",
    "PortTaken",
    "ProtocolError",
    "QueueBusy",
    "QueueCorrupt",
    "QueueError",
    "QueueExists",
    "QueueFull",
    "QueueNotFound",
    "Reject",
    "RemoteProtocolError",
    "ReplyLost",
    "SettingsError",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreRefused",
    "StoreUnavailable",
    "TamboError",
    "UnrecoverableError",
    "WrongType",
]

# A traceback names an error as its reader has to import it, and so does a pickle.
for _name in __all__:
    globals()[_name].__module__ = __name__
