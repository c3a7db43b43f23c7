"""Traffic of four protocols whose end is known: failures, retries, delays, deaths and cancels.

What is in Redis afterwards was written by the operations that producers and workers use; only the
time of day is made up, so that the traffic spans as many minutes as wanted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from tambomq.bulk.redrives import Redrive
from tambomq.chasqui.bulk import redrive as redrive_ops
from tambomq.chasqui.decisions import Retry, RetryPolicy, after_failure
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.ops import add as add_ops
from tambomq.chasqui.ops import dlq as dlq_ops
from tambomq.chasqui.ops import leader as leader_ops
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.add import Draft, Policy
from tambomq.chasqui.ops.leader import LeaderConfig
from tambomq.chasqui.ops.worker import ConsumerContext, Delivery, HandlerRun
from tambomq.chasqui.wire.envelope import decode_envelope, encode_member, read_entry
from tambomq.clock import now_ms
from tambomq.errors import Reject
from tambomq.ids import ulid
from tambomq.journal import ops as journal_ops
from tambomq.journal.keys import JournalKeys
from tambomq.journal.wire import JournalRecord
from tambomq.store.call import Call
from tambomq.store.features import features
from tambomq.store.sync import Store
from tests.pipeline.truth import Lifecycle

T = TypeVar("T")

_EVERYTHING = 1 << 40
_CHUNK = 50
_UNHEARD = 0.1
"""The share of messages that are never received, and of received ones that die."""
_NAMES = ("email", "invoice", "resize", "")
_RULES = RetryPolicy(max_attempts=3)
_OUTCOMES = {
    "done": 70,
    "flaky": 12,
    "dead": 5,
    "rejected": 3,
    "delayed": 6,
    "cancelled": 2,
    "waits": 1,
    "runs": 1,
}
"""Jobs of 100 that end in each way."""


class Workload:
    """Fills the server at *url*; `lifecycles` has the expected rows. A *seed* repeats its traffic.

    *redriven* is the share of dead jobs that run again before their dead letters are read.
    """

    def __init__(
        self, url: str, *, seed: int = 1, minutes: int = 30, redriven: float = 0.3
    ) -> None:
        self.lifecycles: list[Lifecycle] = []
        self._store, self._dice = Store(url), random.Random(seed)
        self._redriven = redriven
        self._from_ms, self._span_ms = now_ms() - (minutes + 5) * 60_000, minutes * 60_000

    def close(self) -> None:
        """Hang up."""
        self._store.close()

    def fill(self, jobs: int) -> None:
        """Draw the lifecycles of *jobs*, and of a third as many messages of each other protocol."""
        half = jobs // 2
        for queue, announce, count in (("orders", True, half), ("mail/out 7", False, jobs - half)):
            there = Jobs(self._store, queue, self._dice, announce=announce)
            there.live(self._drafts(count, self.lifecycles))
            self.lifecycles += there.redriven(self._redriven)
        for make in (self._rsmq, self._gomq, self._kqueue):
            make(jobs // 3)

    # ── when things are sent ─────────────────────────────────────────────────

    def _moments(self, count: int) -> list[int]:
        """Return when *count* things are sent, several at a time."""
        moments = sorted(
            self._from_ms + self._dice.randrange(self._span_ms) for _ in range(-(-count // _CHUNK))
        )
        return [moments[place // _CHUNK] for place in range(count)]

    def _drafts(self, count: int, into: list[Lifecycle]) -> list[tuple[Lifecycle, str]]:
        outcomes = self._dice.choices([*_OUTCOMES], [*_OUTCOMES.values()], k=count)
        names = self._dice.choices(_NAMES, k=count)
        made = [
            (Lifecycle("chasqui", "", ulid(at_ms), name, at_ms), outcome)
            for at_ms, name, outcome in zip(self._moments(count), names, outcomes, strict=True)
        ]
        into += (lifecycle for lifecycle, _ in made)
        return made

    # ── journals ─────────────────────────────────────────────────────────────

    def _rsmq(self, count: int) -> None:
        records: list[JournalRecord] = []
        for sent_ms in self._moments(count):
            lifecycle = self._sent("rsmq", "jobs", f"m{len(self.lifecycles):08}", sent_ms, records)
            if self._dice.random() < _UNHEARD:
                continue
            now = sent_ms
            for attempt in range(1, self._dice.choice((1, 1, 1, 2, 3)) + 1):
                now += self._dice.randrange(1, 30_000)
                records.append(
                    JournalRecord(now, event="received", id=lifecycle.id, attempt=attempt)
                )
                lifecycle.begin(now)
                if attempt > 1:
                    lifecycle.retried_ms.append(now)
                    lifecycle.retries += 1
            lifecycle.run_ms = self._dice.randrange(1, 9000)
            now += lifecycle.run_ms
            if self._dice.random() < _UNHEARD:
                lifecycle.reason = "received too often"
                records.append(
                    JournalRecord(now, event="dead", id=lifecycle.id, reason=lifecycle.reason)
                )
                lifecycle.end(now, "dead")
            else:
                records.append(JournalRecord(now, event="deleted", id=lifecycle.id))
                lifecycle.end(now, "done")
        self._write("rsmq", "jobs", records)

    def _gomq(self, count: int) -> None:
        records: list[JournalRecord] = []
        for sent_ms in self._moments(count):
            lifecycle = self._sent(
                "gomq", "prices", f"x{len(self.lifecycles):08}", sent_ms, records
            )
            if self._dice.random() < _UNHEARD:
                continue
            now = sent_ms
            for consumer in ("billing", "stock"):
                now += self._dice.randrange(1, 9000)
                records.append(
                    JournalRecord(now, event="delivered", id=lifecycle.id, name=consumer)
                )
                lifecycle.begin(now)
            lifecycle.attempts = 1
            lifecycle.end(now, "done", events=0)
        self._write("gomq", "prices", records)

    def _kqueue(self, count: int) -> None:
        records: list[JournalRecord] = []
        lifecycles = []
        for at_ms in self._moments(count):
            lifecycle = self._sent("kqueue", "ticks", "", at_ms, records)
            lifecycle.end(at_ms, "sent", events=0)
            lifecycles.append(lifecycle)
        for lifecycle, id in zip(lifecycles, self._write("kqueue", "ticks", records), strict=True):
            lifecycle.id = id

    def _sent(
        self, protocol: str, queue: str, id: str, at_ms: int, to: list[JournalRecord]
    ) -> Lifecycle:
        body = self._dice.randbytes(self._dice.randrange(0, 40))
        to.append(JournalRecord(at_ms, body, id=id))
        lifecycle = Lifecycle(protocol, queue, id, "", at_ms, body_bytes=len(body), events=1)
        self.lifecycles.append(lifecycle)
        return lifecycle

    def _write(self, protocol: str, queue: str, records: list[JournalRecord]) -> list[str]:
        keys = JournalKeys(protocol, queue)
        return self._store.follow(journal_ops.append(keys, records))


class Jobs:
    """One queue of ChasquiMQ with a producer, a leader and a worker."""

    def __init__(self, store: Store, queue: str, dice: random.Random, *, announce: bool) -> None:
        self._retried: list[bytes] = []
        self._store, self._dice, self._queue, self._announce = store, dice, queue, announce
        self._keys, self._has = Keys(queue), store.follow(features())
        self._policy = Policy(max_stream_len=_EVERYTHING, events_cap=_EVERYTHING, announce=announce)
        self._consumer = ConsumerContext(self._keys, GROUP, "worker", self._has, _EVERYTHING)
        self._leader_config = LeaderConfig(
            self._keys, "tambo-leader", 60, 1000, _EVERYTHING, _EVERYTHING, _EVERYTHING
        )

    def live(self, drafted: Sequence[tuple[Lifecycle, str]]) -> None:
        """Run all jobs, with the outcomes that were drawn."""
        self._lifecycles = {lifecycle.id: (lifecycle, outcome) for lifecycle, outcome in drafted}
        for lifecycle, _ in drafted:
            lifecycle.queue = self._queue
        self._produce(drafted)
        # The second time it is there.
        self._store.outcomes([worker_ops.create_group(self._consumer)])
        while self._promoted() | self._worked():
            pass

    def redriven(self, share: float) -> list[Lifecycle]:
        """Redrive this share of the dead letters; return their second lifecycles."""
        redrive, made = Redrive("again"), list[Lifecycle]()
        self._store.run(redrive_ops.begin(self._keys, redrive))
        for letter in self._store.run(dlq_ops.peek(self._keys, 100_000)):
            job = redrive_ops.job_of(letter, reset=True)
            assert job is not None
            first, _ = self._lifecycles.get(job.id, (None, ""))
            if first and self._dice.random() < share:
                # The dead letter is removed before the pipeline has read it, and its body with it.
                first.body_bytes, first.events = None, first.events - 1
                at_ms = (first.finished_ms or 0) + self._dice.randrange(1000)
                lifecycle = Lifecycle(
                    "chasqui", self._queue, first.id, first.name, at_ms, revived=True
                )
                lifecycle.events += 1
                made.append(lifecycle)
                self._lifecycles[lifecycle.id] = lifecycle, "done"
                self._store.run(
                    redrive_ops.move(self._keys, self._policy, redrive.id, at_ms, [job])
                )
        while self._worked():
            pass
        return made

    def _produce(self, drafted: Sequence[tuple[Lifecycle, str]]) -> None:
        later = [
            (lifecycle, outcome)
            for lifecycle, outcome in drafted
            if outcome in ("delayed", "cancelled")
        ]
        at_once = [each for each, outcome in drafted if outcome not in ("delayed", "cancelled")]
        for same in _runs(at_once):
            jobs = [
                Draft(lifecycle.id, lifecycle.name, b"\x2a", lifecycle.enqueued_ms)
                for lifecycle in same
            ]
            self._store.run(add_ops.add_batch(self._keys, self._has, self._policy, "us", jobs))
            for lifecycle in same if self._announce else ():
                lifecycle.events += 1
        calls: list[Any] = []
        for lifecycle, outcome in later:
            lifecycle.delay_ms, lifecycle.outcome = self._dice.randrange(1000, 90_000), "delayed"
            due_ms = lifecycle.enqueued_ms + lifecycle.delay_ms
            job = Draft(
                lifecycle.id,
                lifecycle.name,
                b"\x2a",
                lifecycle.enqueued_ms,
                None,
                due_ms,
                keyed=True,
            )
            calls.append(add_ops.schedule(self._keys, self._policy, "us", job))
            lifecycle.events += 1
            if outcome == "cancelled":
                at_ms = lifecycle.enqueued_ms + self._dice.randrange(1000)
                calls.append(add_ops.cancel(self._keys, lifecycle.id))
                fields = ("n", lifecycle.name) if lifecycle.name else ()
                calls.append(
                    worker_ops.emit(self._consumer, at_ms, "cancelled", lifecycle.id, *fields)
                )
                lifecycle.end(at_ms, "cancelled")
        self._run(calls)

    def _promoted(self) -> bool:
        """Promote all that is due, and retries at once: their delay is the server's."""
        found = False
        due = [(1, member) for member in self._retried]
        self._retried.clear()
        self._run([Call("ZADD", (self._keys.delayed,), ("XX", *each), int) for each in due])
        while (
            done := self._store.run(leader_ops.promote(self._leader_config))
        ) is None or done.ids:
            if done is None:
                self._store.run(leader_ops.lead(self._leader_config, self._keys.promoter_lock))
                continue
            found = True
            for id in done.ids:
                self._lifecycles[id][0].events += 1
        return found

    def _worked(self) -> bool:
        """Run all that waits."""
        found = False
        while page := self._store.run(worker_ops.read(self._consumer, 1000, 1, 3_600_000)):
            found = True
            for part in _chunks(page, _CHUNK):
                self._run_together(part)
        return found

    def _run_together(self, part: Sequence[Delivery]) -> None:
        """Run jobs that were delivered together: they begin at one time, and end at one time."""
        opened = [(each, decode_envelope(read_entry(each.fields)[0] or b"")) for each in part]
        jobs = [(each, envelope, *self._lifecycles[envelope.id]) for each, envelope in opened]
        jobs = [job for job in jobs if job[3] != "waits"]
        ready = [self._ready_ms(lifecycle) for _, _, lifecycle, _ in jobs]
        at_ms = max(ready, default=0) + self._dice.randrange(5, 2000)
        begun: list[Any] = []
        for _, envelope, lifecycle, _ in jobs:
            lifecycle.begin(at_ms)
            begun += (lifecycle.id, lifecycle.name, envelope.attempt + 1)
        ended: list[Any] = []
        calls: list[Any] = []
        over_ms = at_ms + self._dice.randrange(1, 20_000)
        for each, envelope, lifecycle, outcome in jobs:
            ran_us = self._dice.randrange(1, (over_ms - at_ms) * 1000 + 1)
            if outcome == "runs":
                continue
            if self._fails(outcome, envelope.attempt):
                calls.append(self._failed(each, envelope, lifecycle, outcome, over_ms, ran_us))
            else:
                ended += (each.entry, lifecycle.id, lifecycle.name, envelope.attempt + 1, ran_us)
                lifecycle.end(over_ms, "done")
            lifecycle.run_ms = ran_us // 1000
        if not jobs:
            return
        self._store.run(worker_ops.settle(self._consumer, at_ms, begun, ()))
        if ended:
            self._store.run(worker_ops.settle(self._consumer, over_ms, (), ended))
        self._run(calls)

    def _ready_ms(self, lifecycle: Lifecycle) -> int:
        last = max([lifecycle.enqueued_ms + (lifecycle.delay_ms or 0), *lifecycle.retried_ms[-1:]])
        return last + 100

    def _fails(self, outcome: str, attempt: int) -> bool:
        return outcome in ("dead", "rejected") or (outcome == "flaky" and attempt < 1)

    def _failed(
        self,
        each: Delivery,
        envelope: Any,
        lifecycle: Lifecycle,
        outcome: str,
        at_ms: int,
        ran_us: int,
    ) -> Any:
        message = f"no {lifecycle.name} today"
        error = Reject(message) if outcome == "rejected" else RuntimeError(message)
        lifecycle.failed_ms.append(at_ms)
        lifecycle.error = message
        verdict = after_failure(envelope, lifecycle.name, error, _RULES, self._dice.randrange)
        if isinstance(verdict, Retry):
            lifecycle.retried_ms.append(at_ms)
            lifecycle.retries += 1
            lifecycle.events += 2
            ran = HandlerRun(each.entry, lifecycle.id, lifecycle.name, envelope.attempt + 1, ran_us)
            self._retried.append(encode_member(ran.name, verdict.body, "page"))
            return worker_ops.retry(
                self._consumer, ran, verdict.body, verdict.wait_ms, message, "page", at_ms
            )
        lifecycle.reason, lifecycle.body_bytes = verdict.reason, 1
        # The run failed, the job is dead, and there is a dead letter.
        lifecycle.end(at_ms, "dead", events=3)
        return worker_ops.bury(self._consumer, each.entry, verdict, _EVERYTHING, at_ms, ran_us)

    def _run(self, calls: Sequence[Any]) -> None:
        for part in _chunks(calls, 1000):
            self._store.run_all(part)


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for place in range(0, len(items), size):
        yield items[place : place + size]


def _runs(lifecycles: Sequence[Lifecycle]) -> Iterator[list[Lifecycle]]:
    """Yield those that are added at the same time, in parts that one call may add."""
    part: list[Lifecycle] = []
    for lifecycle in lifecycles:
        if part and (part[0].enqueued_ms != lifecycle.enqueued_ms or len(part) == _CHUNK):
            yield part
            part = []
        part.append(lifecycle)
    if part:
        yield part
