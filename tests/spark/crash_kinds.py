"""Queues of each protocol for crash tests: filling them, and reading what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import redis

from tambomq.bulk.lease_model import LeaseRequest
from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.keys import GROUP, lessee
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.chasqui.wire.envelope import decode_envelope
from tambomq.gomq import keys as gomq_keys
from tambomq.gomq import wire
from tambomq.gomq.bulk.lease import GomqLeaseOps
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.store.sync import Store
from tests.chasqui.stored import jobs
from tests.servers import eventually
from tests.spark.dying import CrashPlan, Event, committed

JOB = "tests.spark.crash_job"


class CrashKind(Protocol):
    """A protocol that can be leased, as its other clients see it."""

    body: str
    """The column that is compared."""

    def make(self, url: str, queue: str) -> None:
        """Make a queue, where that is needed."""

    def fill(self, url: str, queue: str, numbers: Sequence[int]) -> list[bytes]:
        """Send; the bodies."""

    def bodies(self, db: Any, queue: str) -> list[bytes]:
        """All that waits in a queue."""

    def left(self, db: Any, queue: str, lease: str) -> int:
        """How many messages are in the queue or can be claimed."""

    def ledger(self, queue: str, lease: str) -> str:
        """The key of the ledger."""

    def take(self, url: str, queue: str, lease: str, max_count: int) -> list[bytes]:
        """Receive messages of an expired lease as another consumer; return their bodies."""


class OfRsmq:
    """Messages."""

    body = "body"
    _keys = RsmqKeys()

    def make(self, url: str, queue: str) -> None:
        with Rsmq(url) as client:
            client.create_queue(queue)

    def fill(self, url: str, queue: str, numbers: Sequence[int]) -> list[bytes]:
        bodies = [b"%d" % number for number in numbers]
        with Rsmq(url) as client:
            client.send_messages(queue, bodies)
        return bodies

    def bodies(self, db: Any, queue: str) -> list[bytes]:
        ids = db.zrange(self._keys.messages(queue), 0, -1)
        return list(db.hmget(self._keys.data(queue), ids)) if ids else []

    def left(self, db: Any, queue: str, lease: str) -> int:  # noqa: ARG002  (as the others)
        return int(db.zcard(self._keys.messages(queue)))

    def ledger(self, queue: str, lease: str) -> str:
        return self._keys.ledger(queue, lease)

    def take(self, url: str, queue: str, lease: str, max_count: int) -> list[bytes]:  # noqa: ARG002  (as above)
        with Rsmq(url) as client:
            found = client.receive_messages(queue, max_count)
            client.delete_messages(queue, [message.id for message in found])
        return [message.body for message in found]


class OfChasqui:
    """Jobs."""

    body = "payload"

    def make(self, url: str, queue: str) -> None:
        """Nothing needs to be."""

    def fill(self, url: str, queue: str, numbers: Sequence[int]) -> list[bytes]:
        with BlockingQueue(queue, redis_url=url) as client:
            client.add_bulk([{"name": "n", "data": number} for number in numbers])
        return [msgspec.msgpack.encode(number) for number in numbers]

    def bodies(self, db: Any, queue: str) -> list[bytes]:
        return [job.payload for _, job in jobs(db, ChasquiKeys(queue))]

    def left(self, db: Any, queue: str, lease: str) -> int:  # noqa: ARG002  (as the others)
        return int(db.xlen(ChasquiKeys(queue).stream))

    def ledger(self, queue: str, lease: str) -> str:
        return ChasquiKeys(queue).ledger(lease)

    def take(self, url: str, queue: str, lease: str, max_count: int) -> list[bytes]:
        stream = ChasquiKeys(queue).stream
        with redis.Redis.from_url(url) as client:
            db: Any = client
            held = db.xpending_range(stream, GROUP, "-", "+", max_count, lessee(lease))
            ids = [each["message_id"] for each in held]
            taken = db.xclaim(stream, GROUP, "other", 1000, ids)
            db.xack(stream, GROUP, *(id for id, _ in taken))
            db.xdel(stream, *(id for id, _ in taken))
        return [decode_envelope(fields[b"d"]).payload for _, fields in taken]


class OfGomq:
    """Payloads."""

    body = "payload"

    def make(self, url: str, queue: str) -> None:
        """Nothing needs to be."""

    def fill(self, url: str, queue: str, numbers: Sequence[int]) -> list[bytes]:
        bodies = [b"%d" % number for number in numbers]
        pairs = zip(numbers, bodies, strict=True)
        self._ask(
            url, message_ops.push(queue, [wire.encode(f"{n:020}", "", body) for n, body in pairs])
        )
        return bodies

    def bodies(self, db: Any, queue: str) -> list[bytes]:
        found = db.lrange(gomq_keys.queue(queue), 0, -1)
        return [wire.decode(each).payload for each in found]

    def left(self, db: Any, queue: str, lease: str) -> int:
        lessee = gomq_keys.lessee(lease)
        lists = db.llen(gomq_keys.queue(queue)) + db.llen(gomq_keys.messages(queue, lessee, lessee))
        return int(lists + db.exists(gomq_keys.handed(lessee, lessee)))

    def ledger(self, queue: str, lease: str) -> str:
        return gomq_keys.ledger(queue, lease)

    def take(self, url: str, queue: str, lease: str, max_count: int) -> list[bytes]:
        lease_ops, request = GomqLeaseOps(), LeaseRequest(queue, "other", "other")
        store = Store(url)
        try:
            # As if it were half a minute later: only then is a silent peer disconnected.
            with redis.Redis.from_url(url) as db:
                db.hset(self.ledger(queue, lease), "hidden_until", 1)
                db.set(gomq_keys.last_action(gomq_keys.lessee(lease)), 1)
            assert store.follow(lease_ops.release_expired(queue)).keys() == {lease}
            assert store.run(lease_ops.attach(request)).acquired
            claim = store.follow(lease_ops.claim(request, 1, "m", max_count))
            found = store.run(lease_ops.members(request, "m", 0, claim.size))
            store.follow(lease_ops.acknowledge(request, 1, "m"))
            store.follow(leave_ops.unsubscribe(queue, gomq_keys.lessee("other")))
        finally:
            store.close()
        return [wire.decode(each).payload for each in found]

    def _ask(self, url: str, call: Any) -> Any:
        store = Store(url)
        try:
            return store.run(call)
        finally:
            store.close()


KINDS: dict[str, CrashKind] = {"rsmq": OfRsmq(), "chasqui": OfChasqui(), "gomq": OfGomq()}


@dataclass(frozen=True)
class Case:
    """A leased stream and its sink: files, or another queue."""

    name: str
    sink: str
    folder: Path

    @property
    def kind(self) -> CrashKind:
        return KINDS[self.name]

    @property
    def queue(self) -> str:
        return f"to-{self.sink}"

    @property
    def lease(self) -> str:
        return f"{self.name}-{self.sink}"

    @property
    def out(self) -> str:
        """Where rows go."""
        return "files" if self.sink == "files" else "out"

    @property
    def error(self) -> str:
        """What its query ended with."""
        return (self.folder / "ended").read_text()

    def begun(self, url: str, numbers: Sequence[int]) -> list[bytes]:
        """Fill its queue; the bodies."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.kind.make(url, self.queue)
        if self.sink != "files":
            self.kind.make(url, self.out)
        return self.kind.fill(url, self.queue, numbers)

    def doom(self, *events: Event) -> CrashPlan:
        """What is to happen to its query."""
        return CrashPlan(str(self.folder), events)

    def query_spec(self, *events: Event, **options: Any) -> dict[str, Any]:
        """Return the case for `crash_job`."""
        selector = {"queue": self.queue, "lease": self.lease, "partitions": 2, **options}
        return {
            "kind": self.name,
            "sink": self.out,
            "folder": str(self.folder),
            "options": selector,
            "doom": self.doom(*events).to_json(),
        }

    def rows(self, db: redis.Redis) -> list[bytes]:
        """What its sink holds, in some order; of files, without what was another's."""
        if self.sink != "files":
            return sorted(self.kind.bodies(db, self.out))
        found = zip(
            *(committed(self.folder, name) for name in (self.kind.body, "fault")), strict=True
        )
        return sorted(body for body, fault in found if fault is None)

    def left(self, db: redis.Redis) -> int:
        """What its queue still has."""
        return self.kind.left(db, self.queue, self.lease)

    def lapse(self, db: Any) -> None:
        """Wait until its lease is over, and what it hid is not hidden any more."""
        fields = ("until",) if self.name == "gomq" else ("until", "hidden_until")

        def is_over() -> bool:
            seconds, _ = db.time()
            known = db.hmget(self.kind.ledger(self.queue, self.lease), fields)
            return all(int(each or 0) < 1000 * seconds for each in known)

        eventually(is_over, within_s=30)


def both(folder: Path, kind: str) -> list[Case]:
    """A stream into files, and one into another queue."""
    return [Case(kind, sink, folder / sink) for sink in ("files", "queue")]


def job_args(
    url: str, *cases: dict[str, Any], master: str = "local[2]", conf: Any = None
) -> dict[str, Any]:
    """Return the arguments of a job."""
    return {"url": url, "master": master, "conf": conf or {}, "cases": cases}
