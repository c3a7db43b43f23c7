"""All that runs in a chaos run: the server, the processes, and what faults may do to them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any, Final

import redis

from tests.chaos.history import EVERYONE, Recorder
from tests.chaos.member import REDIS, Member, Part, Role, Surroundings
from tests.chaos.redis_server import ChaosRedis
from tests.servers import eventually
from tests.store.proxy import Proxy

LOST_SHARE: Final = 0.1
"""A ping that takes longer than this share of the lease is recorded as a fault of the machine."""
_PING_EVERY_S = 0.05
_LOOK_EVERY_S = 0.1
_RECOVERED_S = 0.5
_LAST_LINES = 30


class World:
    """The server and the processes of one run.

    `random` is one generator for each thread, seeded by the run's seed and the thread's number.
    """

    def __init__(self, redis_: ChaosRedis, roles: Sequence[Role], given: Surroundings) -> None:
        self.redis, self.server, self.folder = redis_, redis_.server, given.folder
        server = self.server
        self.seed, self.lease_s = given.seed, given.lease_s
        self.sources = (given.source, given.older or given.source)
        """The sources of the product, and of an earlier version of it."""
        self.over = threading.Event()
        """Set when no more faults are wanted."""
        self.db: Any = redis.Redis.from_url(server.url, socket_timeout=60)
        """The server as an independent client sees it."""
        self.recorder = Recorder(given.folder, "nemesis")
        self.crashes: list[tuple[str, int, str]] = []
        """Processes that ended by themselves: name, exit code, last lines."""
        self.server_held = threading.Lock()
        """Held by the fault that acts on the server."""
        self.members = [
            Member(role, number, given) for role in roles for number in range(1, role.count + 1)
        ]
        self.refill: Callable[[], Sequence[tuple[Any, ...]]] = tuple
        """Returns the commands that make a server usable again that has lost everything."""
        self.is_ready: Callable[[], bool] = lambda: True
        """Whether the processes do what they are there for, so that a fault meets something."""
        self._local = threading.local()
        self._closing = threading.Event()

    @property
    def random(self) -> random.Random:
        """The generator of this thread."""
        return self._local.random  # type: ignore[no-any-return]

    def seed_thread(self, number: int) -> None:
        """Give this thread a generator of its own."""
        self._local.random = random.Random(f"{self.seed} {number}")

    # ── processes ────────────────────────────────────────────────────────────

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start all processes; none of them is left when the block ends."""
        with ExitStack() as stack:
            for member in self.members:
                stack.callback(member.kill)
                if member.role.to:
                    member.proxy = stack.enter_context(Proxy(self._port_of(member.role.to)))
            pulse = threading.Thread(target=self._watch_server)
            pulse.start()
            stack.callback(pulse.join)
            stack.callback(self._closing.set)
            for member in sorted(self.members, key=lambda each: not each.role.serves):
                member.start()
                eventually(member.is_listening, within_s=20)
            yield

    def _port_of(self, to: str) -> int:
        if to == REDIS:
            return self.server.port
        return next(each.port for each in self.members if each.role.name == to)

    def restart_crashed(self) -> None:
        """Start again what ended by itself, and take note of it."""
        for member in self.members:
            if not member.held.acquire(blocking=False):
                continue
            try:
                code = member.crashed()
                if code is not None:
                    self.note_crash(member, code)
                    self.recorder.note("fault", member.actor, "kill")
                    member.start()
            finally:
                member.held.release()

    def end(self, members: Iterable[Member]) -> None:
        """Ask *members* to end, one after the other; take note of those that do not do so well."""
        for member in members:
            if code := member.end():
                self.note_crash(member, code)

    def note_crash(self, member: Member, code: int) -> None:
        """Take note of a process that did not end as it should."""
        lines = member.log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:]
        self.crashes.append((member.actor, code, "\n".join(lines)))

    # ── what faults use ──────────────────────────────────────────────────────

    @contextmanager
    def fault(self, kind: str, *targets: str) -> Iterator[None]:
        """Record a fault that lasts for as long as the block, by default one that hits everyone."""
        hit = targets or (EVERYONE,)
        begun = [(target, self.recorder.begin("fault", target, kind)) for target in hit]
        try:
            yield
        finally:
            for target, operation in begun:
                self.recorder.end("fault", "ok", target, operation, kind)

    @contextmanager
    def cut_off(self) -> Iterator[tuple[Member, Proxy]]:
        """A process that connects to something, which no other fault acts on, and its proxy."""
        connected = [(each, each.proxy) for each in self.members if each.proxy is not None]
        member, proxy = self.random.choice(connected)
        with member.held:
            yield member, proxy

    @contextmanager
    def victim(self, *parts: Part) -> Iterator[Member]:
        """A process, of one of *parts* if any are given, that no other fault acts on meanwhile."""
        found = [each for each in self.members if not parts or each.role.part in parts]
        member = self.random.choice(found)
        with member.held:
            yield member

    def wait_listening(self, member: Member) -> None:
        """Wait until a server accepts connections, and for as long as its clients may need."""
        eventually(member.is_listening, within_s=20)
        self.sleep(_RECOVERED_S)

    def hit_by(self, member: Member) -> str:
        """Who notices a fault of *member*: itself, or everyone if it is a server."""
        return EVERYONE if member.role.serves else member.actor

    def hold_s(self, low: float, high: float) -> float:
        """Return a length between *low* and *high* leases."""
        return self.lease_s * self.random.uniform(low, high)

    def wait_ready(self) -> None:
        """Wait until the processes do what they are there for, at most until the run is over."""
        while not self.is_ready():
            if self.over.wait(_LOOK_EVERY_S):
                return

    def sleep(self, for_s: float) -> None:
        """Sleep, at most until the run is over."""
        self.over.wait(for_s)

    def recovered(self) -> None:
        """Wait until the server answers, and for as long as clients may need to come back."""
        eventually(self._answers, within_s=30)
        self.sleep(_RECOVERED_S)

    def writable(self) -> None:
        """Make the server write again, and wait for as long as clients may need to notice.

        After a sync that failed it refuses to write until its file is written anew.
        """
        eventually(self._writes, within_s=30)
        self.sleep(_RECOVERED_S)

    def _writes(self) -> bool:
        try:
            return bool(self.db.delete("a key that is not there") == 0)
        except redis.RedisError:
            with suppress(redis.RedisError):
                self.db.bgrewriteaof()
            return False

    def _answers(self) -> bool:
        try:
            return bool(self.db.ping())
        except redis.RedisError:
            return False

    def close(self) -> None:
        """Close its files and connections, after the last look at the server."""
        self.recorder.close()
        self.db.close()

    # ── the machine ──────────────────────────────────────────────────────────

    def _watch_server(self) -> None:
        """Record each time in which the server, or this process, was not run: the load is real.

        Servers are away for as long as a fault wants too; what is recorded twice does no harm.
        """
        with (
            closing(Recorder(self.folder, "pulse")) as recorder,
            redis.Redis.from_url(self.server.url, socket_timeout=60) as db,
        ):
            last = time.monotonic()
            while not self._closing.wait(_PING_EVERY_S):
                try:
                    db.ping()
                except redis.RedisError:
                    continue
                now = time.monotonic()
                if now - last > _PING_EVERY_S + self.lease_s * LOST_SHARE:
                    recorder.note_fault(EVERYONE, "slow machine", last)
                last = now
