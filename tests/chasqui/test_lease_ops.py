"""Leases on ChasquiMQ queues, on each server: claims that outlive their makers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tambomq.chasqui import BlockingQueue, lease_admin_ops, lease_ops, worker_ops
from tambomq.chasqui.keys import GROUP, Keys, lessee
from tambomq.chasqui.lease_ops import Group
from tambomq.chasqui.wire import decode_envelope, decode_member
from tambomq.chasqui.worker_ops import Seat
from tambomq.errors import InvalidFormat, LeaseLost, LeaseTaken, QueueError
from tambomq.store.ledger import Claim, Settled, Term
from tests.leasing import LeaseStage
from tests.servers import Server

KEYS = Keys("q")
ALL = Group()
WORKER = Seat(KEYS, GROUP, "worker")


class Stage(LeaseStage):
    """A queue of ChasquiMQ."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, lease_ops, lease_admin_ops, ALL)
        self.queue = BlockingQueue("q", redis_url=server.url)

    def close(self) -> None:
        self.queue.close()
        super().close()

    def ledger(self, lease: str = "l") -> str:
        return KEYS.ledger(lease)

    def add(self, count: int) -> list[str]:
        jobs = [{"name": "n", "data": number} for number in range(count)]
        return [job.id for job in self.queue.add_bulk(jobs)]

    def entries(self, term: Term) -> list[str]:
        return [m.entry for m in self.store.run(lease_ops.members(term, 0, 10_000))]

    def waiting(self) -> list[str]:
        """All entries of the stream."""
        return [entry.decode() for entry, _ in self.db.xrange(KEYS.stream)]

    def events(self, kind: str) -> list[str]:
        told = (fields for _, fields in self.db.xrange(KEYS.events))
        return [fields[b"id"].decode() for fields in told if fields[b"e"] == kind.encode()]

    def let_all_time_pass(self) -> None:
        super().let_all_time_pass()
        for row in self.db.xpending_range(KEYS.stream, GROUP, "-", "+", 10_000):
            self.db.xclaim(
                *(KEYS.stream, GROUP, row["consumer"], 0, [row["message_id"]]),
                idle=10**9,
                justid=True,
            )


@pytest.fixture
def stage(each_server: Server) -> Iterator[Stage]:
    stage = Stage(each_server)
    yield stage
    stage.close()


def test_what_is_claimed_is_pending_in_the_lease_s_own_name(stage: Stage) -> None:
    ids = stage.add(3)
    term = stage.attached()
    assert stage.claim(term, count=2) == Claim(2, 2, "m")
    assert stage.entries(term) == stage.waiting()[:2]
    rows = stage.db.xpending_range(KEYS.stream, GROUP, "-", "+", 10)
    assert {row["consumer"].decode() for row in rows} == {lessee("l")} == {"spark-l"}
    taken = stage.store.run(worker_ops.read(WORKER, 10, 1, 30_000))
    assert [delivery.entry for delivery in taken] == stage.waiting()[2:]
    assert stage.events("active") == ids[:2]


def test_a_claim_of_many_is_made_in_chunks_and_ended_in_chunks(stage: Stage) -> None:
    ids = stage.add(2500)
    term = stage.attached()
    entries = stage.waiting()
    assert stage.claim(term, count=2300) == Claim(2300, 2300, "m")
    assert stage.entries(term) == entries[:2300]
    assert stage.end(term) == Settled(done=2300)
    assert stage.waiting() == entries[2300:]
    assert stage.events("completed") == ids[:2300]
    assert stage.end(term) == Settled()
    assert stage.claim(term, 2, count=2300) == Claim(200, 200, "m")


def test_a_claim_that_was_never_told_is_handed_out_again(stage: Stage) -> None:
    stage.add(2)
    first = stage.attached()
    stage.claim(first, mark="old")
    entries = stage.entries(first)
    stage.add(1)
    stage.let_the_lease_end()
    second = stage.attached("two")
    assert stage.claim(second, mark="new") == Claim(2, 0, "old")
    assert stage.follow(lease_ops.prune(ALL, second, 2)) == 2
    assert stage.entries(second) == entries


def test_who_was_replaced_changes_nothing_any_more(stage: Stage) -> None:
    stage.add(2)
    old = stage.attached()
    stage.claim(old, count=1)
    assert not stage.store.run(lease_ops.attach(ALL, Term("q", "l", "two"))).ours
    stage.let_the_lease_end()
    new = stage.attached("two")
    before = stage.db.hgetall(KEYS.ledger("l")), stage.waiting()
    for plan in (
        lease_ops.claim(ALL, old, 1, "m", 5),
        lease_ops.acknowledge(ALL, old, 1, "m"),
        lease_ops.renew(ALL, old),
        lease_ops.prune(ALL, old, 1),
    ):
        with pytest.raises(QueueError, match="lost: driver two has it now"):
            stage.follow(plan)
    with pytest.raises(QueueError, match="driver two"):
        stage.store.run(lease_ops.beat(ALL, old))
    assert not stage.store.run(lease_ops.resign(ALL, old))
    assert before == (stage.db.hgetall(KEYS.ledger("l")), stage.waiting())
    assert stage.end(new) == Settled(done=1)
    assert stage.store.run(lease_ops.resign(ALL, new))
    stage.attached("three")


def test_renewed_jobs_are_nobody_else_s_and_lost_ones_are_left_alone(stage: Stage) -> None:
    stage.add(3)
    term = stage.attached()
    stage.claim(term)
    stage.let_all_time_pass()
    (taken,) = stage.store.run(worker_ops.claim(WORKER, 1, 30_000))
    assert stage.follow(lease_ops.renew(ALL, term)) == 1
    assert stage.store.run(worker_ops.claim(WORKER, 9, 30_000)) == []
    assert stage.end(term) == Settled(done=2, lost=1)
    assert stage.waiting() == [taken.entry]


def test_a_dead_query_s_claim_is_given_up_for_others_and_nothing_is_lost(stage: Stage) -> None:
    stage.add(2)
    dead = stage.attached()
    stage.claim(dead)
    stage.let_the_lease_end()
    assert stage.follow(lease_ops.release_expired(ALL, "q")) == {}
    stage.let_all_time_pass()
    assert stage.follow(lease_ops.release_expired(ALL, "q", but="l")) == {}
    assert stage.follow(lease_ops.release_expired(ALL, "q")) == {"l": 2}
    other = stage.attached("two", "other")
    assert stage.claim(other) == Claim(2, 2, "m")
    assert stage.entries(other) == stage.waiting()
    with pytest.raises(QueueError, match="it was given up"):
        stage.end(dead)
    back = stage.store.run(lease_ops.attach(ALL, dead))
    assert (back.ours, back.claim, back.released) == (True, 0, 1)


def test_a_claim_nobody_has_seen_is_pruned_of_what_others_have_taken(stage: Stage) -> None:
    stage.add(3)
    stage.claim(stage.attached())
    stage.let_all_time_pass()
    stage.store.run(worker_ops.claim(WORKER, 2, 30_000))
    new = stage.attached("two")
    assert stage.follow(lease_ops.prune(ALL, new, 3)) == 1
    assert stage.entries(new) == stage.waiting()[2:]


def test_another_checkpoint_s_claim_is_neither_ended_nor_counted(stage: Stage) -> None:
    stage.add(2)
    term = stage.attached()
    stage.claim(term, count=1)
    with pytest.raises(QueueError, match="does not know"):
        stage.end(term, mark="other")
    with pytest.raises(QueueError, match="is at claim 0"):
        stage.claim(term, 3)
    assert len(stage.waiting()) == 2


def test_verdicts_are_carried_out_when_the_claim_ends(stage: Stage) -> None:
    _, again_id, dead_id = stage.add(3)
    term = stage.attached()
    stage.claim(term)
    done, again, dead = stage.entries(term)
    verdicts = [(done, ""), (again, "r5000"), (dead, "dno such customer")]
    stage.follow(lease_ops.judge("q", "l", 1, verdicts))
    assert len(stage.waiting()) == 3
    assert stage.end(term) == Settled(done=1, retried=1, dead=1)
    assert stage.waiting() == []
    [(member, due_ms)] = stage.db.zrange(KEYS.delayed, 0, -1, withscores=True)
    name, envelope = decode_member(member)
    assert (name, decode_envelope(envelope).id) == ("n", again_id)
    assert decode_envelope(envelope).attempt == 1
    told = {fields[b"e"]: fields for _, fields in stage.db.xrange(KEYS.events)}
    assert due_ms == int(told[b"retry-scheduled"][b"ts"]) + 5000
    (letter,) = stage.queue.peek_dlq()
    assert decode_envelope(letter.payload).id == dead_id
    assert letter.reason == "unrecoverable"
    assert letter.detail == "no such customer"
    assert stage.events("retry-scheduled") == [again_id]
    assert stage.events("dlq") == [dead_id]
    assert not stage.db.exists(KEYS.verdicts("l"))


def test_a_verdict_about_a_claim_that_is_over_is_refused(stage: Stage) -> None:
    with pytest.raises(QueueError, match="claim 3 of lease 'l' on queue 'q' is not open"):
        stage.follow(lease_ops.judge("q", "l", 3, [("1-1", "dno")]))


def test_a_paused_queue_gives_nothing(stage: Stage) -> None:
    stage.add(1)
    stage.queue.pause()
    term = stage.attached()
    assert stage.claim(term).size == 0
    stage.queue.resume()
    assert stage.claim(term).size == 1


def test_an_empty_queue_gives_nothing_and_names_are_checked(stage: Stage) -> None:
    assert stage.claim(stage.attached()) == Claim(0, 0, "")
    with pytest.raises(InvalidFormat):
        lease_ops.attach(ALL, Term("q", "a:b", "one"))


def test_a_job_whose_runs_are_used_up_dies_as_it_does_at_a_worker(stage: Stage) -> None:
    jobs = [{"name": "n", "data": number, "attempts": 2} for number in range(2)]
    stage.queue.add_bulk(jobs)
    term = stage.attached()
    stage.claim(term)
    stage.follow(lease_ops.judge("q", "l", 1, [(e, "r0 why") for e in stage.entries(term)]))
    assert stage.end(term) == Settled(retried=2)
    one, two = stage.db.zrange(KEYS.delayed, 0, -1)
    for member in (one, two):
        name, body = decode_member(member)
        stage.db.xadd(KEYS.stream, {"d": body, "n": name})
    stage.claim(term, 2)
    again = stage.entries(term)
    stage.follow(lease_ops.judge("q", "l", 2, [(again[0], "r0 still"), (again[1], "r0")]))
    assert stage.end(term, 2) == Settled(dead=2)
    (_, told), (_, silent) = stage.db.xrange(KEYS.dlq)
    assert list(told.items()) == [
        (b"d", decode_member(one)[1]),
        (b"n", b"n"),
        (b"source_id", again[0].encode()),
        (b"reason", b"retries_exhausted"),
        (b"detail", b"still"),
    ]
    assert list(silent) == [b"d", b"n", b"source_id", b"reason"]
    events = [fields for _, fields in stage.db.xrange(KEYS.events)]
    assert [e[b"reason"] for e in events if e[b"e"] == b"failed"] == [b"why"] * 2 + [b"still", b""]
    assert [e[b"attempt"] for e in events if e[b"e"] == b"retry-scheduled"] == [b"2", b"2"]


def test_the_caller_says_how_often_jobs_run_that_do_not_say_it(stage: Stage) -> None:
    stage.add(2)
    term = stage.attached()
    stage.claim(term)
    one, two = stage.entries(term)
    stage.follow(lease_ops.judge("q", "l", 1, [(one, "r0")], max_attempts=1))
    stage.follow(lease_ops.judge("q", "l", 1, [(two, "r0")], max_attempts=2))
    assert stage.end(term) == Settled(retried=1, dead=1)


def test_what_cannot_be_read_is_not_retried_but_kept_as_a_dead_letter(stage: Stage) -> None:
    stage.db.xadd(KEYS.stream, {"d": b"\xc1"})
    stage.db.xadd(KEYS.stream, {"x": b"y"})
    term = stage.attached()
    stage.claim(term)
    stage.follow(lease_ops.judge("q", "l", 1, [(e, "r0") for e in stage.entries(term)]))
    assert stage.end(term) == Settled(dead=2)
    (_, garbled), (_, foreign) = stage.db.xrange(KEYS.dlq)
    assert (garbled[b"d"], garbled[b"reason"]) == (b"\xc1", b"decode_failed")
    assert (foreign[b"x"], foreign[b"reason"]) == (b"y", b"malformed")
    assert stage.events("failed") == []


# ── for people ───────────────────────────────────────────────────────────────


def test_leases_are_listed_with_who_has_them_and_what_they_have(stage: Stage) -> None:
    assert stage.seen() == []
    stage.add(3)
    stage.claim(stage.attached())
    assert stage.seen() == [("l", "held", "driver one", 1, 3)]
    stage.let_the_lease_end()
    assert stage.seen() == [("l", "away", "driver one", 1, 3)]
    stage.let_all_time_pass()
    assert stage.seen() == [("l", "dead", "driver one", 1, 3)]
    stage.follow(lease_ops.release_expired(ALL, "q"))
    assert stage.seen() == [("l", "free", "", 0, 0)]


def test_what_a_query_that_is_gone_had_is_given_back_before_its_time(stage: Stage) -> None:
    stage.add(1200)
    gone = stage.attached()
    stage.claim(gone, count=1200)
    with pytest.raises(LeaseTaken, match="held by driver one, which is alive"):
        stage.follow(lease_admin_ops.release(ALL, "q", "l"))
    stage.let_the_lease_end()
    assert stage.follow(lease_admin_ops.release(ALL, "q", "l")) == 1200
    assert stage.follow(lease_admin_ops.release(ALL, "q", "l")) == 0
    with pytest.raises(LeaseLost, match="it was given up"):
        stage.end(gone)
    taken = stage.store.run(worker_ops.claim(WORKER, 1000, 30_000))
    assert len(taken) == 1000
    assert {delivery.deliveries for delivery in taken} == {0}


def test_a_lease_is_forgotten_once_nobody_has_it_and_nothing_is_in_it(stage: Stage) -> None:
    stage.add(2)
    stage.claim(stage.attached())
    with pytest.raises(LeaseTaken):
        stage.follow(lease_admin_ops.forget(ALL, "q", "l", give_back=True))
    stage.let_the_lease_end()
    with pytest.raises(QueueError, match="has claim 1 open: give its messages back first"):
        stage.follow(lease_admin_ops.forget(ALL, "q", "l"))
    assert stage.follow(lease_admin_ops.forget(ALL, "q", "l", give_back=True)) is True
    assert stage.follow(lease_admin_ops.forget(ALL, "q", "l")) is False
    assert stage.seen() == []
    assert stage.db.keys("*lease*") == []
    consumers = {each["name"] for each in stage.db.xinfo_consumers(KEYS.stream, GROUP)}
    assert lessee("l").encode() not in consumers
    assert len(stage.store.run(worker_ops.claim(WORKER, 10, 30_000))) == 2
