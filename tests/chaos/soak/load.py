"""The load of a soak: each subject in a world of its own, with a share of the rate.

At a thousand messages a second on two cores most of it is sent in batches, as such load is in
practice, and each subject has no more processes than it needs.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import redis

from tests.chaos.checker import EXCUSED_SHARE
from tests.chaos.member import ROOT, Member, Surroundings
from tests.chaos.nemeses import NEMESES
from tests.chaos.nemeses.nemesis import Nemesis
from tests.chaos.redis_server import redis_server
from tests.chaos.run import READY_S
from tests.chaos.soak.gauges import WARM_UP_S, Gauges, descendants
from tests.chaos.soak.ledger import Ledger, Tail
from tests.chaos.subject import Subject
from tests.chaos.subjects.chasqui import CHASQUI
from tests.chaos.subjects.gomq import GOMQ
from tests.chaos.subjects.kqueue import KQUEUE
from tests.chaos.subjects.pipeline import MOVES, SINK
from tests.chaos.subjects.rsmq import RSMQ
from tests.chaos.subjects.spark import SPARK
from tests.chaos.world import World
from tests.servers import eventually

SHARES: Final = (
    (SPARK, 0.05),
    (RSMQ, 0.35),
    (CHASQUI, 0.30),
    (GOMQ, 0.10),
    (KQUEUE, 0.10),
    (MOVES, 0.05),
    (SINK, 0.05),
)
"""The subjects, and their shares of the rate. Spark first: it takes longest to begin."""
BATCH: Final = 10
"""How many messages senders of RSMQ and ChasquiMQ send at once."""
MOVE_EVERY_S: Final = 2.0
"""Each move that had messages leaves a record for a week."""
SPARK_EVERY_S: Final = 5.0
KINDS: Final = {"plain": 980, "slow": 1, "flaky": 14, "later": 5}
"""Each slow one has a slot for one and a half leases: of more the workers would never be done."""
WORK_S: Final = 0.005
"""The longest that a handler takes: a consumer of GOMQ has one message after the other."""
CONCURRENCY: Final = 10
"""Of each worker; a batch of GOMQ has as many messages."""
LEASE_S: Final = 4.0
OVERDUE_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.5
# What must live long, so that its memory can be measured, is not killed here. Faults that need
# another version, or a library in Redis, are tried in runs of their own.
_NOT: Final = frozenset(
    {"kill-server", "kill-redis", "kill-worker", "kill-sender", "flushall", "upgrade"}
)


class LoadedSubject:
    """A subject that runs, and what is known of it."""

    def __init__(self, subject: Subject, world: World) -> None:
        self.subject, self.world = subject, world
        self.promises = subject.promises(LEASE_S)
        self.ledger = Ledger(once=self.promises.once, costly_s=LEASE_S * EXCUSED_SHARE)
        self.gauges: dict[str, Gauges] = {}
        self.confirmed: set[int] = set()
        """Hashes of all confirmed messages, if there are results to compare them with."""
        self.lake: dict[str, int] = {}
        """What the lake came to in the end, if there is one."""
        self.keys: list[int] = []
        self.kills = self.faults = self.lost = 0
        self.left = 0
        """How many confirmed messages nobody had handled when the time to do so was over."""
        self._tail = Tail(world.folder)

    @property
    def nemeses(self) -> list[Nemesis]:
        """The faults that it may have."""
        found = [each for each in NEMESES.values() if each.name not in _NOT and not each.shims]
        return [
            *(each for each in found if each.applies(self.subject) and not each.unavailable()),
            Nemesis("kill", self.kill),
        ]

    def kill(self, world: World) -> None:
        """Kill a process that is not the first of its role, and start another."""
        victims = [each for each in world.members if each.number > 1 and not each.role.serves]
        member: Member = world.random.choice(victims)
        with member.held:
            member.kill()
            world.recorder.note("fault", member.actor, "kill")
            world.sleep(world.hold_s(0, 0.5))
            member.start()
        self.kills += 1

    def look(self) -> None:
        """Read what is new, and find what is lost."""
        self.world.restart_crashed()
        self._read()
        now = time.monotonic()
        if overdue := self.ledger.overdue(now, OVERDUE_S):
            dead = set(self.subject.dead(self.world))
            for message in overdue & dead:
                self.ledger.complete(message, now)
            gone = overdue - dead
            if self.promises.keeps:
                gone = self.ledger.lost(gone, set(self.subject.pending(self.world)))
                self.lost += len(gone)
            for message in gone:
                del self.ledger.open[message]
        self.ledger.forget(now)

    def _read(self) -> None:
        """Feed the ledger with the records of processes, and with what has arrived."""
        events = list(self._tail.events())
        if self.promises.completed_by:
            self.confirmed.update(
                hash(event.message)
                for event in events
                if event.action == "send" and event.outcome == "ok"
            )
        self.ledger.feed(events)
        self._tail.free()
        with suppress(redis.RedisError):  # A fault is on: it is still there the next time.
            for actor, text in self.subject.arrivals(self.world):
                self.ledger.complete(text, time.monotonic(), actor)

    def sample(self) -> None:
        """Sample the gauges of all processes, and count the keys."""
        now = time.monotonic()
        with suppress(redis.RedisError):
            self.keys.append(self._lasting_keys())
        for name, pid in self._processes():
            if name not in self.gauges:
                self.gauges[name] = Gauges(now, WARM_UP_S * self.subject.slowness)
            self.gauges[name].sample(now, pid)

    def _lasting_keys(self) -> int:
        """How many keys do not expire. A finished move, for one, leaves a fence for a week."""
        found = self.world.db.info("keyspace").get("db0", {"keys": 0, "expires": 0})
        return int(found["keys"] - found["expires"])

    def _processes(self) -> Iterator[tuple[str, int]]:
        """Yield all processes that can be measured now; a new one has a new name."""
        yield "redis", self.world.server.pid
        for member in self.world.members:
            if member.held.acquire(blocking=False):
                try:
                    # What was ended has none.
                    with suppress(RuntimeError):
                        yield member.actor, member.pid
                        for name, pid in descendants(member.pid):
                            yield f"{member.actor} {name} {pid}", pid
                finally:
                    member.held.release()

    @property
    def allowed_doubles(self) -> int:
        """How many messages may have run again: those in flight at a fault, also of the machine."""
        if self.promises.once:
            return 0
        return (self.faults + self.ledger.starved) * CONCURRENCY

    def end_senders(self) -> None:
        """End what makes messages."""
        self.world.end(member for member in self.world.members if member.role.sends)

    def end_others(self) -> None:
        """End all other processes, the servers last."""
        self.world.restart_crashed()
        self.world.end(sorted(self.world.members, key=lambda each: each.role.serves))

    def drain(self, until: float) -> None:
        """Wait until nothing is left to do, or until that time of the monotonic clock."""
        pause = threading.Event()
        while time.monotonic() < until and list(self.subject.pending(self.world)):
            self.world.restart_crashed()
            pause.wait(_LOOK_EVERY_S)

    def close_books(self) -> None:
        """Find what is lost after all has ended."""
        self._read()
        now = time.monotonic()
        for message in self.ledger.open.keys() & set(self.subject.dead(self.world)):
            self.ledger.complete(message, now)
        if self.promises.keeps:
            pending = set(self.subject.pending(self.world))
            self.lost += len(self.ledger.open.keys() - pending)
            self.left = len(self.ledger.open.keys() & pending)
        if self.promises.completed_by:
            found = Counter(hash(text) for _, text in self.subject.results(self.world))
            self.lake = {
                "rows": found.total(),
                "confirmed": len(self.confirmed),
                "missing": len(self.confirmed - found.keys()),
                "twice": found.total() - len(found),
            }


@contextmanager
def running(
    folder: Path, rate: float, seed: int, stopping: threading.Event
) -> Iterator[list[LoadedSubject]]:
    """All subjects, each with a Redis of its own; some have not begun if *stopping* is set."""
    with ExitStack() as stack:
        started = []
        source = ROOT / "src"
        for each, share in SHARES:
            subject = _at(each, rate * share)
            own = folder / subject.name.replace(" ", "-")
            own.mkdir(parents=True)
            server = stack.enter_context(redis_server(()))
            world = World(server, subject.roles, Surroundings(own, seed, LEASE_S, source))
            subject.prepare(world)
            stack.enter_context(world.running())
            eventually(partial(_is_ready, subject, world, stopping), within_s=READY_S)
            started.append(LoadedSubject(subject, world))
        yield started


def _is_ready(subject: Subject, world: World, stopping: threading.Event) -> bool:
    return stopping.is_set() or subject.is_ready(world)


def _at(subject: Subject, rate: float) -> Subject:
    """The subject, with senders that send at *rate* together.

    Jobs of the same id are left out: each of them keeps a key.
    """
    roles = [role for role in subject.roles if not role.options.get("unique")]
    senders = sum(role.count for role in roles if role.sends)
    kinds: Any = KINDS if subject in (RSMQ, CHASQUI) else {"plain": 1}
    sending = {"rate": rate / senders, "kinds": kinds, "batch": BATCH}
    every_s = {"mover": MOVE_EVERY_S, "spark": SPARK_EVERY_S}
    roles = [
        replace(
            role,
            options={
                **role.options,
                **(sending if role.sends else {"work_s": WORK_S}),
                **({"every_s": every_s[role.name]} if role.name in every_s else {}),
            },
        )
        for role in roles
    ]
    return replace(subject, roles=tuple(roles))
