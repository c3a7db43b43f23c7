"""Leases on ChasquiMQ queues, on each server: claims that outlive their makers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tambomq.bulk.lease_model import AckCounts, Claim, LeaseRequest
from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.bulk.lease import ChasquiLeaseOps
from tambomq.chasqui.bulk.lease_admin import ChasquiLeaseAdminOps
from tambomq.chasqui.bulk.lease_verdicts import write_verdicts
from tambomq.chasqui.keys import GROUP, Keys, lessee
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.worker import ConsumerContext
from tambomq.chasqui.wire.envelope import decode_envelope, decode_member
from tambomq.errors import InvalidFormat, LeaseLost, LeaseTaken, QueueError
from tests.leasing import LeaseBench
from tests.servers import Server

KEYS = Keys("q")
OPS = ChasquiLeaseOps()
ADMIN = ChasquiLeaseAdminOps()
WORKER = ConsumerContext(KEYS, GROUP, "worker")


class ChasquiLeaseBench(LeaseBench):
    """A queue of ChasquiMQ."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, OPS, ADMIN)
        self.queue = BlockingQueue("q", redis_url=server.url)

    def close(self) -> None:
        self.queue.close()
        super().close()

    def ledger(self, lease: str = "l") -> str:
        return KEYS.ledger(lease)

    def add(self, count: int) -> list[str]:
        jobs = [{"name": "n", "data": number} for number in range(count)]
        return [job.id for job in self.queue.add_bulk(jobs)]

    def ids(self, request: LeaseRequest) -> list[str]:
        return [m.entry for m in self.store.run(OPS.members(request, 0, 10_000))]

    def waiting(self) -> list[str]:
        """All entries of the stream."""
        return [entry.decode() for entry, _ in self.db.xrange(KEYS.stream)]

    def events(self, kind: str) -> list[str]:
        entries = (fields for _, fields in self.db.xrange(KEYS.events))
        return [fields[b"id"].decode() for fields in entries if fields[b"e"] == kind.encode()]

    def expire_claim(self) -> None:
        super().expire_claim()
        for row in self.db.xpending_range(KEYS.stream, GROUP, "-", "+", 10_000):
            self.db.xclaim(
                *(KEYS.stream, GROUP, row["consumer"], 0, [row["message_id"]]),
                idle=10**9,
                justid=True,
            )


@pytest.fixture
def bench(each_server: Server) -> Iterator[ChasquiLeaseBench]:
    bench = ChasquiLeaseBench(each_server)
    yield bench
    bench.close()


def test_claimed_jobs_are_pending_for_the_consumer_of_the_lease(bench: ChasquiLeaseBench) -> None:
    ids = bench.add(3)
    request = bench.attached()
    assert bench.claim(request, count=2) == Claim(2, 2, "m")
    assert bench.ids(request) == bench.waiting()[:2]
    rows = bench.db.xpending_range(KEYS.stream, GROUP, "-", "+", 10)
    assert {row["consumer"].decode() for row in rows} == {lessee("l")} == {"spark-l"}
    taken = bench.store.run(worker_ops.read(WORKER, 10, 1, 30_000))
    assert [delivery.entry for delivery in taken] == bench.waiting()[2:]
    assert bench.events("active") == ids[:2]


def test_a_claim_of_many_is_made_in_chunks_and_ended_in_chunks(bench: ChasquiLeaseBench) -> None:
    ids = bench.add(2500)
    request = bench.attached()
    entries = bench.waiting()
    assert bench.claim(request, count=2300) == Claim(2300, 2300, "m")
    assert bench.ids(request) == entries[:2300]
    assert bench.acknowledge(request) == AckCounts(done=2300)
    assert bench.waiting() == entries[2300:]
    assert bench.events("completed") == ids[:2300]
    assert bench.acknowledge(request) == AckCounts()
    assert bench.claim(request, 2, count=2300) == Claim(200, 200, "m")


def test_a_claim_whose_reply_was_lost_is_returned_again(bench: ChasquiLeaseBench) -> None:
    bench.add(2)
    first = bench.attached()
    bench.claim(first, claim_token="old")
    entries = bench.ids(first)
    bench.add(1)
    bench.expire_lease()
    second = bench.attached("two")
    assert bench.claim(second, claim_token="new") == Claim(2, 0, "old")
    assert bench.follow(OPS.prune(second, 2)) == 2
    assert bench.ids(second) == entries


def test_a_replaced_owner_changes_nothing_any_more(bench: ChasquiLeaseBench) -> None:
    bench.add(2)
    old = bench.attached()
    bench.claim(old, count=1)
    assert not bench.store.run(OPS.attach(LeaseRequest("q", "l", "two"))).acquired
    bench.expire_lease()
    new = bench.attached("two")
    before = bench.db.hgetall(KEYS.ledger("l")), bench.waiting()
    for plan in (
        OPS.claim(old, 1, "m", 5),
        OPS.acknowledge(old, 1, "m"),
        OPS.renew(old),
        OPS.prune(old, 1),
        OPS.clear_verdicts(old),
        write_verdicts(old, 1, "m", [(bench.ids(new)[0], "dstale")]),
    ):
        with pytest.raises(QueueError, match="lost: driver two has it now"):
            bench.follow(plan)
    with pytest.raises(QueueError, match="driver two"):
        bench.store.run(OPS.heartbeat(old))
    assert not bench.store.run(OPS.resign(old))
    assert before == (bench.db.hgetall(KEYS.ledger("l")), bench.waiting())
    assert bench.acknowledge(new) == AckCounts(done=1)
    assert bench.store.run(OPS.resign(new))
    bench.attached("three")


def test_renewed_jobs_stay_owned_and_lost_ones_are_left_alone(
    bench: ChasquiLeaseBench,
) -> None:
    bench.add(3)
    request = bench.attached()
    bench.claim(request)
    bench.expire_claim()
    (taken,) = bench.store.run(worker_ops.claim(WORKER, 1, 30_000))
    assert bench.follow(OPS.renew(request)) == 1
    assert bench.store.run(worker_ops.claim(WORKER, 9, 30_000)) == []
    assert bench.acknowledge(request) == AckCounts(done=2, lost=1)
    assert bench.waiting() == [taken.entry]


def test_the_claim_of_a_dead_query_is_released_and_nothing_is_lost(
    bench: ChasquiLeaseBench,
) -> None:
    bench.add(2)
    dead = bench.attached()
    bench.claim(dead)
    bench.expire_lease()
    assert bench.follow(OPS.release_expired("q")) == {}
    bench.expire_claim()
    assert bench.follow(OPS.release_expired("q", except_lease="l")) == {}
    assert bench.follow(OPS.release_expired("q")) == {"l": 2}
    other = bench.attached("two", "other")
    assert bench.claim(other) == Claim(2, 2, "m")
    assert bench.ids(other) == bench.waiting()
    with pytest.raises(QueueError, match="it was released"):
        bench.acknowledge(dead)
    back = bench.store.run(OPS.attach(dead))
    assert (back.acquired, back.claim, back.released) == (True, 0, 1)


def test_an_unread_claim_drops_jobs_that_other_consumers_took(
    bench: ChasquiLeaseBench,
) -> None:
    bench.add(3)
    bench.claim(bench.attached())
    bench.expire_claim()
    bench.store.run(worker_ops.claim(WORKER, 2, 30_000))
    new = bench.attached("two")
    assert bench.follow(OPS.prune(new, 3)) == 1
    assert bench.ids(new) == bench.waiting()[2:]


def test_another_checkpoint_s_claim_is_neither_ended_nor_counted(bench: ChasquiLeaseBench) -> None:
    bench.add(2)
    request = bench.attached()
    bench.claim(request, count=1)
    with pytest.raises(QueueError, match="does not know"):
        bench.acknowledge(request, claim_token="other")
    with pytest.raises(QueueError, match="is at claim 0"):
        bench.claim(request, 3)
    assert len(bench.waiting()) == 2


def test_verdicts_are_carried_out_when_the_claim_ends(bench: ChasquiLeaseBench) -> None:
    _, again_id, dead_id = bench.add(3)
    request = bench.attached()
    bench.claim(request)
    done, again, dead = bench.ids(request)
    verdicts = [(done, ""), (again, "r5000"), (dead, "dno such customer")]
    bench.follow(write_verdicts(request, 1, "m", verdicts))
    assert len(bench.waiting()) == 3
    assert bench.acknowledge(request) == AckCounts(done=1, retried=1, dead=1)
    assert bench.waiting() == []
    [(member, due_ms)] = bench.db.zrange(KEYS.delayed, 0, -1, withscores=True)
    name, envelope = decode_member(member)
    assert (name, decode_envelope(envelope).id) == ("n", again_id)
    assert decode_envelope(envelope).attempt == 1
    events = {fields[b"e"]: fields for _, fields in bench.db.xrange(KEYS.events)}
    assert due_ms == int(events[b"retry-scheduled"][b"ts"]) + 5000
    (letter,) = bench.queue.peek_dlq()
    assert decode_envelope(letter.payload).id == dead_id
    assert letter.reason == "unrecoverable"
    assert letter.detail == "no such customer"
    assert bench.events("retry-scheduled") == [again_id]
    assert bench.events("dlq") == [dead_id]
    assert not bench.db.exists(KEYS.verdicts("l"))


def test_a_verdict_about_a_claim_that_is_over_is_refused(bench: ChasquiLeaseBench) -> None:
    request = bench.attached()
    with pytest.raises(QueueError, match="claim 3 of lease 'l' on queue 'q' is not open"):
        bench.follow(write_verdicts(request, 3, "m", [("1-1", "dno")]))


def test_a_verdict_about_a_claim_whose_number_is_used_again_is_refused(
    bench: ChasquiLeaseBench,
) -> None:
    bench.add(1)
    old = bench.attached()
    bench.claim(old, claim_token="first")
    (id,) = bench.ids(old)
    bench.expire_claim()
    assert bench.follow(OPS.release_expired("q")) == {"l": 1}
    # The same owner and number as before: only the claim's token differs.
    assert bench.attached() == old
    assert bench.claim(old, claim_token="second").size == 1
    with pytest.raises(QueueError, match="its verdicts come too late"):
        bench.follow(write_verdicts(old, 1, "first", [(id, "dstale")]))
    assert bench.acknowledge(old, claim_token="second") == AckCounts(done=1)


def test_a_new_owner_carries_out_or_clears_the_verdicts_of_an_earlier_one(
    bench: ChasquiLeaseBench,
) -> None:
    bench.add(1)
    old = bench.attached()
    for number, is_run_again in ((1, True), (2, False)):
        bench.claim(old, number)
        (id,) = bench.ids(old)
        bench.follow(write_verdicts(old, number, "m", [(id, "dwhy")]))
        bench.expire_lease()
        old = bench.attached(f"owner after {number}")
        if is_run_again:
            bench.follow(OPS.clear_verdicts(old))
            bench.add(1)
        wanted = AckCounts(done=1) if is_run_again else AckCounts(dead=1)
        assert bench.acknowledge(old, number) == wanted


def test_nothing_is_claimed_from_a_paused_queue(bench: ChasquiLeaseBench) -> None:
    bench.add(1)
    bench.queue.pause()
    request = bench.attached()
    assert bench.claim(request).size == 0
    bench.queue.resume()
    assert bench.claim(request).size == 1


def test_nothing_is_claimed_from_an_empty_queue_and_names_are_checked(
    bench: ChasquiLeaseBench,
) -> None:
    assert bench.claim(bench.attached()) == Claim(0, 0, "")
    with pytest.raises(InvalidFormat):
        OPS.attach(LeaseRequest("q", "a:b", "one"))


def test_a_retry_without_attempts_left_is_dead_lettered(bench: ChasquiLeaseBench) -> None:
    jobs = [{"name": "n", "data": number, "attempts": 2} for number in range(2)]
    bench.queue.add_bulk(jobs)
    request = bench.attached()
    bench.claim(request)
    bench.follow(write_verdicts(request, 1, "m", [(e, "r0 why") for e in bench.ids(request)]))
    assert bench.acknowledge(request) == AckCounts(retried=2)
    one, two = bench.db.zrange(KEYS.delayed, 0, -1)
    for member in (one, two):
        name, body = decode_member(member)
        bench.db.xadd(KEYS.stream, {"d": body, "n": name})
    bench.claim(request, 2)
    again = bench.ids(request)
    bench.follow(write_verdicts(request, 2, "m", [(again[0], "r0 still"), (again[1], "r0")]))
    assert bench.acknowledge(request, 2) == AckCounts(dead=2)
    (_, explained), (_, silent) = bench.db.xrange(KEYS.dlq)
    assert list(explained.items()) == [
        (b"d", decode_member(one)[1]),
        (b"n", b"n"),
        (b"source_id", again[0].encode()),
        (b"reason", b"retries_exhausted"),
        (b"detail", b"still"),
    ]
    assert list(silent) == [b"d", b"n", b"source_id", b"reason"]
    events = [fields for _, fields in bench.db.xrange(KEYS.events)]
    assert [e[b"reason"] for e in events if e[b"e"] == b"failed"] == [b"why"] * 2 + [b"still", b""]
    assert [e[b"attempt"] for e in events if e[b"e"] == b"retry-scheduled"] == [b"2", b"2"]


def test_max_attempts_applies_to_jobs_without_a_limit_of_their_own(
    bench: ChasquiLeaseBench,
) -> None:
    bench.add(2)
    request = bench.attached()
    bench.claim(request)
    one, two = bench.ids(request)
    bench.follow(write_verdicts(request, 1, "m", [(one, "r0")], max_attempts=1))
    bench.follow(write_verdicts(request, 1, "m", [(two, "r0")], max_attempts=2))
    assert bench.acknowledge(request) == AckCounts(retried=1, dead=1)


def test_a_job_that_cannot_be_decoded_is_dead_lettered_instead_of_retried(
    bench: ChasquiLeaseBench,
) -> None:
    bench.db.xadd(KEYS.stream, {"d": b"\xc1"})
    bench.db.xadd(KEYS.stream, {"x": b"y"})
    request = bench.attached()
    bench.claim(request)
    bench.follow(write_verdicts(request, 1, "m", [(e, "r0") for e in bench.ids(request)]))
    assert bench.acknowledge(request) == AckCounts(dead=2)
    (_, garbled), (_, foreign) = bench.db.xrange(KEYS.dlq)
    assert (garbled[b"d"], garbled[b"reason"]) == (b"\xc1", b"decode_failed")
    assert (foreign[b"x"], foreign[b"reason"]) == (b"y", b"malformed")
    assert bench.events("failed") == []


# ── for people ───────────────────────────────────────────────────────────────


def test_leases_are_listed_with_holder_and_open_claim(bench: ChasquiLeaseBench) -> None:
    assert bench.leases() == []
    bench.add(3)
    bench.claim(bench.attached())
    assert bench.leases() == [("l", "held", "driver one", 1, 3)]
    bench.expire_lease()
    assert bench.leases() == [("l", "away", "driver one", 1, 3)]
    bench.expire_claim()
    assert bench.leases() == [("l", "dead", "driver one", 1, 3)]
    bench.follow(OPS.release_expired("q"))
    assert bench.leases() == [("l", "free", "", 0, 0)]


def test_a_dead_query_s_messages_are_given_back_early(
    bench: ChasquiLeaseBench,
) -> None:
    bench.add(1200)
    expired = bench.attached()
    bench.claim(expired, count=1200)
    with pytest.raises(LeaseTaken, match="held by driver one, which is alive"):
        bench.follow(ADMIN.release("q", "l"))
    bench.expire_lease()
    assert bench.follow(ADMIN.release("q", "l")) == 1200
    assert bench.follow(ADMIN.release("q", "l")) == 0
    with pytest.raises(LeaseLost, match="it was released"):
        bench.acknowledge(expired)
    taken = bench.store.run(worker_ops.claim(WORKER, 1000, 30_000))
    assert len(taken) == 1000
    assert {delivery.deliveries for delivery in taken} == {0}


def test_a_lease_without_holder_and_claim_can_be_forgotten(
    bench: ChasquiLeaseBench,
) -> None:
    bench.add(2)
    bench.claim(bench.attached())
    with pytest.raises(LeaseTaken):
        bench.follow(ADMIN.forget("q", "l", give_back=True))
    bench.expire_lease()
    with pytest.raises(QueueError, match="has claim 1 open: give its messages back first"):
        bench.follow(ADMIN.forget("q", "l"))
    assert bench.follow(ADMIN.forget("q", "l", give_back=True)) is True
    assert bench.follow(ADMIN.forget("q", "l")) is False
    assert bench.leases() == []
    assert bench.db.keys("*lease*") == []
    consumers = {each["name"] for each in bench.db.xinfo_consumers(KEYS.stream, GROUP)}
    assert lessee("l").encode() not in consumers
    assert len(bench.store.run(worker_ops.claim(WORKER, 10, 30_000))) == 2
