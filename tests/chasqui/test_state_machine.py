"""Random programs: after each step the server holds exactly what the model predicts.

``--hypothesis-profile`` sets the number of programs of up to 40 steps: see `tests.profiles`.
"""

from __future__ import annotations

from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    rule,
    run_state_machine_as_test,
)

from tambomq.chasqui.decisions import DeadLettered
from tambomq.chasqui.job import Envelope, JobCounts
from tambomq.chasqui.keys import GROUP, RETURNED
from tambomq.chasqui.ops import add as add_ops
from tambomq.chasqui.ops import admin as admin_ops
from tambomq.chasqui.ops import dlq as dlq_ops
from tambomq.chasqui.ops import leader as leader_ops
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.add import Draft, Policy
from tambomq.chasqui.ops.leader import LeaderConfig
from tambomq.chasqui.wire.envelope import (
    decode_envelope,
    decode_member,
    encode_envelope,
    encode_member,
)
from tambomq.clock import now_ms
from tambomq.errors import ForeignLeader, QueueBusy, QueueFull, RemoteProtocolError
from tambomq.store.features import features
from tambomq.store.sync import Store
from tests import profiles
from tests.chasqui import working
from tests.chasqui.comparing import CAP, KEYS, NOW, Compared, is_job
from tests.chasqui.model import FAR, Queue, named
from tests.servers import Server

server = working.server

# A program takes an eighth of a second here: ten times as long as one of RSMQ.
EXAMPLES = profiles.programs(0.4)
POLICY = Policy(max_stream_len=CAP, announce=True)
DUE = 2000
CONSUMER_PREFIX = "tambo-one"

texts = st.sampled_from(["", "job", "ñ", "n" * 255])
producers = st.sampled_from(["p1", "p2"])
chosen_ids = st.sampled_from(["a", "b", "{c}"])
maybe_ids = st.none() | chosen_ids
times = st.sampled_from([DUE, DUE + 1, FAR])
dialects = st.sampled_from(["page", "engine"])
consumers = st.sampled_from(["c1", "c1", "c2"])
picks = st.lists(st.integers(0, 20), min_size=1, max_size=4)
counts = st.integers(1, 4)


class Programs(Compared):
    """Operations of producers, leaders, workers and operators, in any order."""

    @initialize(count=st.integers(0, 5))
    def begin(self, count: int) -> None:
        self.add_batch("p1", ["job"] * count)
        self.read("c1", 3)

    # ── producers ────────────────────────────────────────────────────────────

    @rule(producer=producers, name=texts, id=maybe_ids)
    def add(self, producer: str, name: str, id: str | None) -> None:
        job, seen = self._draft(name, id), self.model.windows[producer]
        call = add_ops.add(KEYS, self.has, POLICY, producer, job)
        if job.id in seen:
            assert self.store.run(call) == len(self.model.stream)
        elif self._fits(1, lambda: self.store.run(call)):
            self.model.put(job.id, job.body, name)
            seen.add(job.id)

    @rule(name=texts, id=chosen_ids)
    def add_once(self, name: str, id: str) -> None:
        job = self._draft(name, id)
        call = add_ops.add_once(KEYS, POLICY, job)
        if id in self.model.added:
            assert self.store.run(call) == len(self.model.stream)
        elif self._fits(1, lambda: self.store.run(call)):
            self.model.put(id, job.body, name)
            self.model.added.add(id)

    @rule(producer=producers, names=st.lists(texts, max_size=4), twice=st.booleans())
    def add_batch(self, producer: str, names: list[str], *, twice: bool = False) -> None:
        if names:
            self._add_batch(producer, [self._draft(name) for name in names], twice=twice)

    @rule(producer=producers, ids=st.lists(chosen_ids, min_size=1, max_size=4))
    def add_keyed_batch(self, producer: str, ids: list[str]) -> None:
        self._add_batch(producer, [self._draft("job", id) for id in ids], twice=True)

    def _add_batch(self, producer: str, jobs: list[Draft], *, twice: bool) -> None:
        call = add_ops.add_batch(KEYS, self.has, POLICY, producer, jobs)
        if not self._fits(len(jobs), lambda: self.store.run(call)):
            return
        seen = self.model.windows[producer]
        for job in jobs:
            if job.id not in seen:
                self.model.put(job.id, job.body, job.name)
                seen |= {job.id} if job.keyed else {"a batch"}
        seen.add("a batch")
        if twice:
            # As a store does when the reply was lost.
            assert self.store.run(call) == len(self.model.stream)

    @rule(producer=producers, name=texts, id=maybe_ids, due=times, dialect=dialects)
    def schedule(self, producer: str, name: str, id: str | None, due: int, dialect: str) -> None:
        job = self._draft(name, id)
        job.run_at_ms = due
        call = add_ops.schedule(KEYS, Policy(dialect=dialect), producer, job)
        if dialect == "page" and self.model.is_led_by_a_stranger():
            with pytest.raises(ForeignLeader):
                self.store.run(call)
            return
        member = encode_member(name, job.body, dialect)
        done = self.model.schedule(job.id, member, due, keyed=id is not None)
        for _ in range(2):
            # The second time as after a lost reply: it recognises its own entry.
            assert self.store.run(call) is done
        if done:
            self.model.windows[producer].add(job.id if id is None else "a request")
        if done:
            self.model.add_event("delayed", job.id, name, "delay_ms", due - NOW)

    @rule(id=chosen_ids)
    def cancel(self, id: str) -> None:
        done = self.model.cancel(id)
        assert self.store.run(add_ops.cancel(KEYS, id)) is done
        self.model.windows["requests"] |= {id} if done else set()

    # ── leaders ──────────────────────────────────────────────────────────────

    @rule(batch=counts)
    def promote(self, batch: int) -> None:
        config = LeaderConfig(KEYS, CONSUMER_PREFIX, ttl_s=1000, batch=batch, cap=CAP)
        promotion = self.store.run(leader_ops.promote(config))
        if self.model.is_led_by_a_stranger():
            assert promotion is None
            return
        assert promotion is not None
        self.model.leader = CONSUMER_PREFIX
        ids, buried = [], 0
        for member in self.model.due()[: min(batch, self.model.free_slots)]:
            del self.model.delayed[member]
            try:
                name, body = decode_member(member)
            except RemoteProtocolError:
                detail = [b"reason", b"malformed", b"detail", b"bad delayed member"]
                self.model.bury([b"d", member, b"source_id", b"", *detail])
                self.model.add_event("dlq", "", "", "attempt", 0, "reason", "malformed")
                buried += 1
            else:
                ids.append(decode_envelope(body).id)
                self.model.put(ids[-1], body, name)
        assert (promotion.ids, promotion.buried) == (ids, buried)
        assert promotion.delayed == len(self.model.delayed)
        assert (promotion.wait_ms is None) is (not self.model.delayed)
        if ids:
            self.store.run(leader_ops.forget_indexes(KEYS, ids))
            for id in ids:
                # One that was scheduled again stays cancellable.
                if self.model.indexes.get(id) not in self.model.delayed:
                    self.model.indexes.pop(id, None)

    @rule(holder=st.sampled_from([None, CONSUMER_PREFIX, "c-stranger"]))
    def another_leads(self, holder: str | None) -> None:
        self.db.delete(KEYS.promoter_lock)
        if holder is not None:
            self.db.set(KEYS.promoter_lock, holder)
        self.model.leader = holder

    @rule(member=st.sampled_from([b"\xff", b"", b"\x05ab"]))
    def a_stranger_leaves_garbage(self, member: bytes) -> None:
        self.db.zadd(KEYS.delayed, {member: DUE})
        self.model.delayed[member] = DUE

    # ── workers ──────────────────────────────────────────────────────────────

    @rule(consumer=consumers, count=counts)
    def read(self, consumer: str, count: int) -> None:
        self._learn()
        deliveries = self.store.run(worker_ops.read(self._context(consumer), count, 1, 10**7))
        taken = self.model.read(consumer, count)
        assert [(each.entry, each.fields) for each in deliveries] == [
            (entry.id, entry.fields) for entry in taken
        ]
        assert {each.deliveries for each in deliveries} <= {0}

    @rule(consumer=consumers, count=counts)
    def claim(self, consumer: str, count: int) -> None:
        deliveries = self.store.run(worker_ops.claim(self._context(consumer), count, 0))
        found = [(each.entry, each.deliveries) for each in deliveries]
        assert found == self.model.claim(consumer, count)

    @rule(consumer=consumers, picks=picks)
    def recover(self, consumer: str, picks: list[int]) -> None:
        known = [entry.id for entry in self._some(picks)]
        deliveries = self.store.run(worker_ops.recover(self._context(consumer), known))
        assert [(each.entry, each.deliveries) for each in deliveries] == [
            (entry.id, self.model.held[entry.id].times - 1)
            for entry in self.model.stream
            if self.model.owns(consumer, entry.id) and entry.id not in known
        ]

    @rule(consumer=consumers, picks=picks)
    def renew(self, consumer: str, picks: list[int]) -> None:
        chosen = [entry.id for entry in self._some(picks)]
        lost = self.store.run(worker_ops.renew(self._context(consumer), chosen))
        assert lost == [entry for entry in chosen if not self.model.owns(consumer, entry)]

    @rule(consumer=consumers, picks=picks, deliveries=st.integers(0, 3))
    def give_back(self, consumer: str, picks: list[int], deliveries: int) -> None:
        chosen = [entry.id for entry in self._some(picks)]
        pairs = [(entry, deliveries) for entry in chosen]
        given = self.store.run(worker_ops.give_back(self._context(consumer), pairs, 5000))
        owned = [entry for entry in chosen if self.model.owns(consumer, entry)]
        assert given == len(owned)
        for entry in owned:
            self.model.held[entry].consumer = RETURNED
            self.model.held[entry].times = deliveries

    @rule(consumer=consumers, picks=picks)
    def settle(self, consumer: str, picks: list[int]) -> None:
        chosen = self._some(picks)
        runs = [self._ran(entry) for entry in chosen]
        begun: list[Any] = [item for ran in runs for item in (ran.id, ran.name, ran.attempt)]
        ended: list[Any] = [
            item for ran in runs for item in (ran.entry, ran.id, ran.name, ran.attempt, 5)
        ]
        lost = self.store.run(worker_ops.settle(self._context(consumer), NOW, begun, ended))
        for ran in runs:
            self.model.add_event("active", ran.id, ran.name, "attempt", ran.attempt)
        assert lost == [ran.entry for ran in runs if not self.model.may_end(consumer, ran.entry)]
        for ran in runs:
            if ran.entry not in lost:
                self._completed(ran)

    @rule(consumer=consumers, picks=picks, value=st.binary(min_size=1, max_size=3))
    def done(self, consumer: str, picks: list[int], value: bytes) -> None:
        for entry in self._some(picks)[:1]:
            ran, ends = self._ran(entry), self.model.may_end(consumer, entry.id)
            call = worker_ops.done(self._context(consumer), ran, value, 1000, NOW)
            assert self.store.run(call) is ends
            if ends:
                self.model.results[ran.id] = value
                self._completed(ran)

    @rule(consumer=consumers, picks=picks, wait_ms=times, dialect=dialects)
    def retry(self, consumer: str, picks: list[int], wait_ms: int, dialect: str) -> None:
        for entry in self._some(picks)[:1]:
            ran, ends = self._ran(entry), self.model.may_end(consumer, entry.id)
            body = encode_envelope(Envelope(ran.id, b"\x01", NOW, ran.attempt))
            # From now on by the server's clock: long ago, or in a far future.
            context, due = (
                self._context(consumer),
                wait_ms if wait_ms >= FAR else wait_ms - now_ms(),
            )
            reply = self.store.run(worker_ops.retry(context, ran, body, due, "no", dialect, NOW))
            if ends and dialect == "page" and self.model.is_led_by_a_stranger():
                assert reply == self.model.leader
                return
            assert reply is ends
            if ends:
                self.model.end(entry.id)
                # By the server's clock, which the test does not know to the millisecond.
                member = encode_member(ran.name, body, dialect)
                self.model.delayed[member] = int(self.db.zscore(KEYS.delayed, member) or 0)
                failed = ("attempt", ran.attempt, "reason", "no", "duration_us", 5)
                self.model.add_event("failed", ran.id, ran.name, *failed)
                later = ("attempt", ran.attempt + 1, "backoff_ms", due)
                self.model.add_event("retry-scheduled", ran.id, ran.name, *later)

    @rule(consumer=consumers, picks=picks, garbage=st.booleans(), ran_us=st.none() | st.just(5))
    def bury(self, consumer: str, picks: list[int], ran_us: int | None, *, garbage: bool) -> None:
        for entry in self._some(picks)[:1]:
            ran, ends = self._ran(entry), self.model.may_end(consumer, entry.id)
            body = b"\xff" if garbage else entry.fields[1]
            letter = DeadLettered("why", body, "more", ran.id, ran.name, ran.attempt)
            call = worker_ops.bury(self._context(consumer), entry.id, letter, 1000, NOW, ran_us)
            assert self.store.run(call) is ends
            if ends:
                self.model.end(entry.id)
                fields = [b"source_id", entry.id.encode(), b"reason", b"why", b"detail", b"more"]
                self.model.bury([*named(body, ran.name), *fields])
                if ran_us is not None:
                    failed = ("attempt", ran.attempt, "reason", "more", "duration_us", 5)
                    self.model.add_event("failed", ran.id, ran.name, *failed)
                why = ("attempt", ran.attempt, "reason", "why")
                self.model.add_event("dlq", ran.id, ran.name, *why)

    # ── those who look after it ──────────────────────────────────────────────

    @rule(limit=st.integers(0, 4))
    def replay(self, limit: int) -> None:
        chosen = [letter for letter in self.model.dlq if is_job(letter)][:limit]
        plan = dlq_ops.replay(KEYS, POLICY, NOW, limit=limit)
        if chosen and not self.model.free_slots:
            with pytest.raises(QueueFull):
                self.store.follow(plan)
            return
        chosen = chosen[: self.model.free_slots]
        assert self.store.follow(plan) == len(chosen)
        for letter in chosen:
            self.model.dlq.remove(letter)
            envelope = decode_envelope(letter.fields[1])
            envelope.attempt = 0
            self.model.put(envelope.id, encode_envelope(envelope), letter.name)

    @rule(delayed=st.booleans())
    def drain(self, *, delayed: bool) -> None:
        self._learn()
        plan = admin_ops.drain(KEYS, GROUP, delayed=delayed)
        assert self.store.follow(plan) == self.model.drain(delayed=delayed)
        if delayed:
            # What only serves to tell and find jobs may go with them, or expire.
            for id in ("a", "b", "{c}"):
                if not self.db.exists(KEYS.marker(id)):
                    self.model.markers.discard(id)
                if not self.db.exists(KEYS.index(id)):
                    self.model.indexes.pop(id, None)

    @rule(pause=st.booleans())
    def pause(self, *, pause: bool) -> None:
        call = admin_ops.pause(KEYS) if pause else admin_ops.resume(KEYS)
        done = pause or self.model.is_paused
        assert self.store.run(call) is done
        self.model.windows["requests"] |= {"pause"} if done else set()
        self.model.is_paused = pause
        assert self.store.run(worker_ops.is_paused(KEYS)) is pause

    @rule(really=st.integers(0, 4), force=st.booleans())
    def obliterate(self, really: int, *, force: bool) -> None:
        plan = admin_ops.obliterate(KEYS, GROUP, force=force)
        if self.model.in_hands() and not force:
            with pytest.raises(QueueBusy):
                self.store.follow(plan)
        elif really == 0:
            assert self.store.follow(plan) == len(self._expected_keys())
            self.model = Queue(CAP)
            self.store.run(worker_ops.create_group(self._context("c1")))

    @rule()
    def count(self) -> None:
        model, found = self.model, self.store.follow(admin_ops.counts(KEYS, GROUP))
        lag_ms = found.oldest_delayed_lag_ms
        assert (lag_ms is None) is (not model.delayed)
        assert bool(lag_ms) is bool(model.due())
        active = model.in_hands()
        waits = len(model.waiting()) + len(model.held) - active
        counts = (waits, active, len(model.delayed), len(model.dlq), 0)
        assert found == JobCounts(*counts, lag_ms, model.is_paused, has_group=True)


@pytest.mark.timeout(60 + EXAMPLES)
def test_no_program_makes_server_and_model_differ(server: Server, db: redis.Redis) -> None:
    Programs.db, Programs.store = db, Store(server.url)
    Programs.has = Programs.store.follow(features())
    try:
        run_state_machine_as_test(
            Programs,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            ),
        )
    finally:
        Programs.store.close()
