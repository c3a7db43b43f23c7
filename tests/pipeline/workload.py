"""Traffic of four protocols whose end is known: failures, retries, delays, deaths and cancels.

What is in Redis afterwards was written by the operations that producers and workers use; only the
time of day is made up, so that the traffic spans as many minutes as wanted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from tambomq.chasqui import dlq_ops, lead_ops, ops, redrive_ops, worker_ops
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.lead_ops import Office
from tambomq.chasqui.ops import Draft, Policy
from tambomq.chasqui.verdict import Retry, Rules, after_failure
from tambomq.chasqui.wire import decode_envelope, encode_member, read_entry
from tambomq.chasqui.worker_ops import Delivery, Ran, Seat
from tambomq.clock import now_ms
from tambomq.errors import Reject
from tambomq.ids import ulid
from tambomq.journal import ops as journal_ops
from tambomq.journal.keys import Keys as JournalKeys
from tambomq.journal.wire import Record
from tambomq.store.call import Call
from tambomq.store.features import features
from tambomq.store.redrives import Redrive
from tambomq.store.sync import Store
from tests.pipeline.truth import Life

T = TypeVar("T")

_EVERYTHING = 1 << 40
_CHUNK = 50
_UNHEARD = 0.1
"""So many messages nobody receives, and of those received so many die."""
_NAMES = ("email", "invoice", "resize", "")
_RULES = Rules(max_attempts=3)
_FATES = {
    "done": 70,
    "flaky": 12,
    "dead": 5,
    "rejected": 3,
    "delayed": 6,
    "cancelled": 2,
    "waits": 1,
    "runs": 1,
}
"""How many of 100 jobs have which."""


class Workload:
    """Fills the server at *url*; `lives` has the truth. The same *seed* makes the same traffic.

    So many of the dead are *redriven*, before anybody may have read their letters.
    """

    def __init__(
        self, url: str, *, seed: int = 1, minutes: int = 30, redriven: float = 0.3
    ) -> None:
        self.lives: list[Life] = []
        self._store, self._dice = Store(url), random.Random(seed)
        self._redriven = redriven
        self._from_ms, self._span_ms = now_ms() - (minutes + 5) * 60_000, minutes * 60_000

    def close(self) -> None:
        """Hang up."""
        self._store.close()

    def fill(self, jobs: int) -> None:
        """Let *jobs* of ChasquiMQ and about a third as many messages of each other one live."""
        half = jobs // 2
        for queue, announce, count in (("orders", True, half), ("mail/out 7", False, jobs - half)):
            there = Jobs(self._store, queue, self._dice, announce=announce)
            there.live(self._drafts(count, self.lives))
            self.lives += there.redriven(self._redriven)
        for make in (self._rsmq, self._gomq, self._kqueue):
            make(jobs // 3)

    # ── when things are sent ─────────────────────────────────────────────────

    def _moments(self, count: int) -> list[int]:
        """Return when *count* things are sent, several at a time."""
        moments = sorted(
            self._from_ms + self._dice.randrange(self._span_ms) for _ in range(-(-count // _CHUNK))
        )
        return [moments[place // _CHUNK] for place in range(count)]

    def _drafts(self, count: int, into: list[Life]) -> list[tuple[Life, str]]:
        fates = self._dice.choices([*_FATES], [*_FATES.values()], k=count)
        names = self._dice.choices(_NAMES, k=count)
        made = [
            (Life("chasqui", "", ulid(at_ms), name, at_ms), fate)
            for at_ms, name, fate in zip(self._moments(count), names, fates, strict=True)
        ]
        into += (life for life, _ in made)
        return made

    # ── journals ─────────────────────────────────────────────────────────────

    def _rsmq(self, count: int) -> None:
        records: list[Record] = []
        for sent_ms in self._moments(count):
            life = self._sent("rsmq", "jobs", f"m{len(self.lives):08}", sent_ms, records)
            if self._dice.random() < _UNHEARD:
                continue
            now = sent_ms
            for attempt in range(1, self._dice.choice((1, 1, 1, 2, 3)) + 1):
                now += self._dice.randrange(1, 30_000)
                records.append(Record(now, event="received", id=life.id, attempt=attempt))
                life.begin(now)
                if attempt > 1:
                    life.retried_ms.append(now)
                    life.retries += 1
            life.run_ms = self._dice.randrange(1, 9000)
            now += life.run_ms
            if self._dice.random() < _UNHEARD:
                life.reason = "received too often"
                records.append(Record(now, event="dead", id=life.id, reason=life.reason))
                life.end(now, "dead")
            else:
                records.append(Record(now, event="deleted", id=life.id))
                life.end(now, "done")
        self._write("rsmq", "jobs", records)

    def _gomq(self, count: int) -> None:
        records: list[Record] = []
        for sent_ms in self._moments(count):
            life = self._sent("gomq", "prices", f"x{len(self.lives):08}", sent_ms, records)
            if self._dice.random() < _UNHEARD:
                continue
            now = sent_ms
            for consumer in ("billing", "stock"):
                now += self._dice.randrange(1, 9000)
                records.append(Record(now, event="delivered", id=life.id, name=consumer))
                life.begin(now)
            life.attempts = 1
            life.end(now, "done", events=0)
        self._write("gomq", "prices", records)

    def _kqueue(self, count: int) -> None:
        records: list[Record] = []
        lives = []
        for at_ms in self._moments(count):
            life = self._sent("kqueue", "ticks", "", at_ms, records)
            life.end(at_ms, "sent", events=0)
            lives.append(life)
        for life, id in zip(lives, self._write("kqueue", "ticks", records), strict=True):
            life.id = id

    def _sent(self, protocol: str, queue: str, id: str, at_ms: int, to: list[Record]) -> Life:
        body = self._dice.randbytes(self._dice.randrange(0, 40))
        to.append(Record(at_ms, body, id=id))
        life = Life(protocol, queue, id, "", at_ms, body_bytes=len(body), events=1)
        self.lives.append(life)
        return life

    def _write(self, protocol: str, queue: str, records: list[Record]) -> list[str]:
        keys = JournalKeys(protocol, queue)
        return self._store.follow(journal_ops.append(keys, records))


class Jobs:
    """One queue of ChasquiMQ with all who use it: a producer, a leader and a worker."""

    def __init__(self, store: Store, queue: str, dice: random.Random, *, announce: bool) -> None:
        self._retried: list[bytes] = []
        self._store, self._dice, self._queue, self._announce = store, dice, queue, announce
        self._keys, self._has = Keys(queue), store.follow(features())
        self._policy = Policy(max_stream_len=_EVERYTHING, events_cap=_EVERYTHING, announce=announce)
        self._seat = Seat(self._keys, GROUP, "worker", self._has, _EVERYTHING)
        self._office = Office(
            self._keys, "tambo-leader", 60, 1000, _EVERYTHING, _EVERYTHING, _EVERYTHING
        )

    def live(self, drafted: Sequence[tuple[Life, str]]) -> None:
        """Let all jobs live, as their fates say."""
        self._lives = {life.id: (life, fate) for life, fate in drafted}
        for life, _ in drafted:
            life.queue = self._queue
        self._produce(drafted)
        # The second time it is there.
        self._store.outcomes([worker_ops.make_group(self._seat)])
        while self._promoted() | self._worked():
            pass

    def redriven(self, share: float) -> list[Life]:
        """Let so many of the dead run again; return their second lives."""
        told, made = Redrive("again"), list[Life]()
        self._store.run(redrive_ops.begin(self._keys, told))
        for letter in self._store.run(dlq_ops.peek(self._keys, 100_000)):
            job = redrive_ops.job_of(letter, reset=True)
            assert job is not None
            first, _ = self._lives.get(job.id, (None, ""))
            if first and self._dice.random() < share:
                # Its letter is gone before anybody has read it, and the body with it.
                first.body_bytes, first.events = None, first.events - 1
                at_ms = (first.finished_ms or 0) + self._dice.randrange(1000)
                life = Life("chasqui", self._queue, first.id, first.name, at_ms, revived=True)
                life.events += 1
                made.append(life)
                self._lives[life.id] = life, "done"
                self._store.run(redrive_ops.move(self._keys, self._policy, told.id, at_ms, [job]))
        while self._worked():
            pass
        return made

    def _produce(self, drafted: Sequence[tuple[Life, str]]) -> None:
        later = [(life, fate) for life, fate in drafted if fate in ("delayed", "cancelled")]
        at_once = [life for life, fate in drafted if fate not in ("delayed", "cancelled")]
        for same in _runs(at_once):
            jobs = [Draft(life.id, life.name, b"\x2a", life.enqueued_ms) for life in same]
            self._store.run(ops.add_batch(self._keys, self._has, self._policy, "us", jobs))
            for life in same if self._announce else ():
                life.events += 1
        calls: list[Any] = []
        for life, fate in later:
            life.delay_ms, life.outcome = self._dice.randrange(1000, 90_000), "delayed"
            due_ms = life.enqueued_ms + life.delay_ms
            job = Draft(life.id, life.name, b"\x2a", life.enqueued_ms, None, due_ms, keyed=True)
            calls.append(ops.schedule(self._keys, self._policy, "us", job))
            life.events += 1
            if fate == "cancelled":
                at_ms = life.enqueued_ms + self._dice.randrange(1000)
                calls.append(ops.cancel(self._keys, life.id))
                fields = ("n", life.name) if life.name else ()
                calls.append(worker_ops.emit(self._seat, at_ms, "cancelled", life.id, *fields))
                life.end(at_ms, "cancelled")
        self._run(calls)

    def _promoted(self) -> bool:
        """Let all that is due wait for the worker, and retries at once: they wait by the server."""
        found = False
        due = [(1, member) for member in self._retried]
        self._retried.clear()
        self._run([Call("ZADD", (self._keys.delayed,), ("XX", *each), int) for each in due])
        while (done := self._store.run(lead_ops.promote(self._office))) is None or done.ids:
            if done is None:
                self._store.run(lead_ops.lead(self._office, self._keys.promoter_lock))
                continue
            found = True
            for id in done.ids:
                self._lives[id][0].events += 1
        return found

    def _worked(self) -> bool:
        """Run all that waits."""
        found = False
        while page := self._store.run(worker_ops.read(self._seat, 1000, 1, 3_600_000)):
            found = True
            for part in _chunks(page, _CHUNK):
                self._run_together(part)
        return found

    def _run_together(self, part: Sequence[Delivery]) -> None:
        """Run jobs that were delivered together: they begin at one time, and end at one time."""
        opened = [(each, decode_envelope(read_entry(each.fields)[0] or b"")) for each in part]
        jobs = [(each, envelope, *self._lives[envelope.id]) for each, envelope in opened]
        jobs = [job for job in jobs if job[3] != "waits"]
        ready = [self._ready_ms(life) for _, _, life, _ in jobs]
        at_ms = max(ready, default=0) + self._dice.randrange(5, 2000)
        begun: list[Any] = []
        for _, envelope, life, _ in jobs:
            life.begin(at_ms)
            begun += (life.id, life.name, envelope.attempt + 1)
        ended: list[Any] = []
        calls: list[Any] = []
        over_ms = at_ms + self._dice.randrange(1, 20_000)
        for each, envelope, life, fate in jobs:
            ran_us = self._dice.randrange(1, (over_ms - at_ms) * 1000 + 1)
            if fate == "runs":
                continue
            if self._fails(fate, envelope.attempt):
                calls.append(self._failed(each, envelope, life, fate, over_ms, ran_us))
            else:
                ended += (each.entry, life.id, life.name, envelope.attempt + 1, ran_us)
                life.end(over_ms, "done")
            life.run_ms = ran_us // 1000
        if not jobs:
            return
        self._store.run(worker_ops.settle(self._seat, at_ms, begun, ()))
        if ended:
            self._store.run(worker_ops.settle(self._seat, over_ms, (), ended))
        self._run(calls)

    def _ready_ms(self, life: Life) -> int:
        last = max([life.enqueued_ms + (life.delay_ms or 0), *life.retried_ms[-1:]])
        return last + 100

    def _fails(self, fate: str, attempt: int) -> bool:
        return fate in ("dead", "rejected") or (fate == "flaky" and attempt < 1)

    def _failed(
        self, each: Delivery, envelope: Any, life: Life, fate: str, at_ms: int, ran_us: int
    ) -> Any:
        told = f"no {life.name} today"
        error = Reject(told) if fate == "rejected" else RuntimeError(told)
        life.failed_ms.append(at_ms)
        life.error = told
        verdict = after_failure(envelope, life.name, error, _RULES, self._dice.randrange)
        if isinstance(verdict, Retry):
            life.retried_ms.append(at_ms)
            life.retries += 1
            life.events += 2
            ran = Ran(each.entry, life.id, life.name, envelope.attempt + 1, ran_us)
            self._retried.append(encode_member(ran.name, verdict.body, "page"))
            return worker_ops.retry(
                self._seat, ran, verdict.body, verdict.wait_ms, told, "page", at_ms
            )
        life.reason, life.body_bytes = verdict.reason, 1
        # The run failed, the job is dead, and there is a dead letter.
        life.end(at_ms, "dead", events=3)
        return worker_ops.bury(self._seat, each.entry, verdict, _EVERYTHING, at_ms, ran_us)

    def _run(self, calls: Sequence[Any]) -> None:
        for part in _chunks(calls, 1000):
            self._store.run_all(part)


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for place in range(0, len(items), size):
        yield items[place : place + size]


def _runs(lives: Sequence[Life]) -> Iterator[list[Life]]:
    """Yield those that are added at the same time, in parts that one call may add."""
    part: list[Life] = []
    for life in lives:
        if part and (part[0].enqueued_ms != life.enqueued_ms or len(part) == _CHUNK):
            yield part
            part = []
        part.append(life)
    if part:
        yield part
