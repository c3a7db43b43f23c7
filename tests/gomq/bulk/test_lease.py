"""Leases on GOMQ's keys, on each server: claims that outlive their makers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from tambomq.bulk.lease_model import AckCounts, Claim, LeaseRequest
from tambomq.errors import InvalidFormat, LeaseLost, LeaseTaken, QueueError
from tambomq.gomq import keys
from tambomq.gomq.bulk.lease import GomqLeaseOps
from tambomq.gomq.bulk.lease_admin import GomqLeaseAdminOps
from tambomq.gomq.model import Options
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tests.leasing import LeaseBench
from tests.servers import Server

OPTIONS = Options()
OPS = GomqLeaseOps(OPTIONS)
ADMIN = GomqLeaseAdminOps(OPTIONS)
ME = keys.lessee("l")


class GomqLeaseBench(LeaseBench):
    """A key of GOMQ's."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, OPS, ADMIN)

    def ledger(self, lease: str = "l") -> str:
        return keys.ledger("q", lease)

    def publish(self, *messages: bytes) -> None:
        self.store.run(message_ops.push("q", messages))

    def members(self, request: LeaseRequest, claim_token: str = "m") -> list[bytes]:
        return self.store.run(OPS.members(request, claim_token, 0, 1000))

    def waiting(self) -> list[bytes]:
        main: list[bytes] = self.db.lrange(keys.queue("q"), 0, -1)
        own: list[bytes] = self.db.lrange(keys.messages("q", ME, ME), 0, -1)
        return own + main

    def expire_claim(self) -> None:
        super().expire_claim()
        self.db.set(keys.last_action(ME), 1)


@pytest.fixture
def bench(each_server: Server) -> Iterator[GomqLeaseBench]:
    bench = GomqLeaseBench(each_server)
    yield bench
    bench.close()


def test_claimed_messages_are_kept_until_they_are_acknowledged(bench: GomqLeaseBench) -> None:
    bench.publish(b"a", b"b", b"c")
    request = bench.attached()
    assert bench.claim(request, count=2) == Claim(2, 2, "m")
    assert bench.members(request) == [b"a", b"b"]
    assert bench.members(request, "other") == []
    assert bench.store.run(OPS.claim_size(request)) == 2
    assert bench.waiting() == [b"c"]
    assert bench.acknowledge(request) == AckCounts(done=2)
    assert bench.acknowledge(request) == AckCounts()
    assert bench.claim(request, 2) == Claim(1, 1, "m")
    assert bench.acknowledge(request, 2) == AckCounts(done=1)
    assert bench.claim(request, 3) == Claim(0, 0, "")


def test_every_call_of_a_claim_may_be_repeated_after_a_lost_reply(bench: GomqLeaseBench) -> None:
    bench.publish(b"a", b"b")
    plan = OPS.claim(bench.attached(), 1, "m", 2)
    calls = list(next(plan))
    with suppress(StopIteration):
        while True:
            assert all(call.repeatable for call in calls), calls
            calls = list(plan.send(bench.store.outcomes([*calls, *calls])[len(calls) :]))
    assert len(bench.waiting()) == 0


def test_a_claim_whose_reply_was_lost_is_returned_again(bench: GomqLeaseBench) -> None:
    bench.publish(b"a", b"b")
    first = bench.attached()
    bench.claim(first, claim_token="old")
    bench.publish(b"late")
    bench.expire_lease()
    second = bench.attached("two")
    assert bench.claim(second, claim_token="new") == Claim(2, 0, "old")
    assert bench.follow(OPS.prune(second, 2)) == 2
    assert bench.members(second, "old") == [b"a", b"b"]


def test_a_replaced_owner_changes_nothing_any_more(bench: GomqLeaseBench) -> None:
    bench.publish(b"a", b"b")
    old = bench.attached()
    bench.claim(old, count=1)
    assert not bench.store.run(OPS.attach(LeaseRequest("q", "l", "two"))).acquired
    bench.expire_lease()
    new = bench.attached("two")
    for plan in (
        OPS.claim(old, 1, "m", 5),
        OPS.acknowledge(old, 1, "m"),
        OPS.renew(old),
    ):
        with pytest.raises(QueueError, match="lost: driver two has it now"):
            bench.follow(plan)
    assert not bench.store.run(OPS.resign(old))
    assert bench.members(new) == [b"a"]
    assert bench.acknowledge(new) == AckCounts(done=1)
    assert bench.store.run(OPS.resign(new))
    bench.attached("three")


def test_a_lease_that_is_renewed_is_not_disconnected(bench: GomqLeaseBench) -> None:
    bench.publish(b"a")
    request = bench.attached()
    bench.claim(request)
    bench.expire_claim()
    assert bench.follow(OPS.renew(request)) == 0
    assert bench.store.follow(leave_ops.reap(ME, OPTIONS)).peers == 0
    assert bench.members(request) == [b"a"]


def test_the_claim_of_a_dead_query_is_requeued_and_nothing_is_lost(bench: GomqLeaseBench) -> None:
    bench.publish(b"a", b"b", b"c")
    dead = bench.attached()
    bench.claim(dead, count=2)
    assert bench.follow(OPS.release_expired("q")) == {}
    bench.expire_claim()
    assert bench.follow(OPS.release_expired("q", except_lease="l")) == {}
    assert bench.follow(OPS.release_expired("q")) == {"l": 1}
    assert bench.waiting() == [b"a", b"b", b"c"]
    other = bench.attached("two", "other")
    assert bench.claim(other).size == 3
    with pytest.raises(QueueError, match="it was released"):
        bench.acknowledge(dead)
    back = bench.store.run(OPS.attach(dead))
    assert (back.acquired, back.claim, back.released, back.lapsed) == (True, 0, 1, True)


def test_a_claim_that_a_server_took_away_is_noticed(bench: GomqLeaseBench) -> None:
    bench.publish(b"a")
    request = bench.attached()
    bench.claim(request)
    bench.expire_claim()
    assert bench.store.follow(leave_ops.reap(ME, OPTIONS)).returned == 1
    assert bench.follow(OPS.renew(request)) == 1
    assert bench.members(request) == []
    assert bench.acknowledge(request) == AckCounts(lost=1)
    assert bench.waiting() == [b"a"]


def test_an_unread_claim_that_was_released_is_made_again(
    bench: GomqLeaseBench,
) -> None:
    bench.publish(b"a")
    bench.claim(bench.attached(), claim_token="old")
    bench.expire_claim()
    bench.store.follow(leave_ops.reap(ME, OPTIONS))
    new = bench.attached("two")
    assert bench.claim(new, claim_token="new") == Claim(1, 1, "new")


def test_another_checkpoint_s_claim_is_neither_ended_nor_counted(bench: GomqLeaseBench) -> None:
    bench.publish(b"a", b"b")
    request = bench.attached()
    bench.claim(request, count=1)
    with pytest.raises(QueueError, match="does not know"):
        bench.acknowledge(request, claim_token="other")
    with pytest.raises(QueueError, match="is at claim 0"):
        bench.claim(request, 3)
    assert bench.members(request) == [b"a"]


def test_a_lease_has_one_key(bench: GomqLeaseBench) -> None:
    request = bench.attached()
    bench.claim(request)
    with pytest.raises(QueueError, match="lease 'l' is subscribed to key 'q', not to 'other'"):
        bench.claim(bench.attached(queue="other"))
    bench.publish(b"a")
    assert bench.claim(request).size == 1


def test_names_are_checked() -> None:
    with pytest.raises(InvalidFormat):
        OPS.attach(LeaseRequest("q", "a:b", "one"))


# ── for people ───────────────────────────────────────────────────────────────


def test_leases_are_listed_with_holder_and_open_claim(bench: GomqLeaseBench) -> None:
    assert bench.leases() == []
    bench.publish(b"a", b"b", b"c")
    bench.claim(bench.attached())
    assert bench.leases() == [("l", "held", "driver one", 1, 3)]
    bench.expire_lease()
    assert bench.leases() == [("l", "away", "driver one", 1, 3)]
    bench.expire_claim()
    assert bench.leases() == [("l", "dead", "driver one", 1, 3)]
    bench.follow(OPS.release_expired("q"))
    assert bench.leases() == [("l", "free", "", 0, 0)]


def test_a_dead_query_s_messages_are_given_back_early(bench: GomqLeaseBench) -> None:
    bench.publish(b"a", b"b", b"c")
    expired = bench.attached()
    bench.claim(expired, count=2)
    with pytest.raises(LeaseTaken, match="held by driver one, which is alive"):
        bench.follow(ADMIN.release("q", "l"))
    bench.expire_lease()
    assert bench.follow(ADMIN.release("q", "l")) == 2
    assert bench.follow(ADMIN.release("q", "l")) == 0
    assert bench.db.lrange(keys.queue("q"), 0, -1) == [b"a", b"b", b"c"]
    with pytest.raises(LeaseLost, match="it was released"):
        bench.acknowledge(expired)


def test_a_lease_without_holder_and_claim_can_be_forgotten(
    bench: GomqLeaseBench,
) -> None:
    bench.publish(b"a", b"b")
    bench.claim(bench.attached(), count=1)
    with pytest.raises(LeaseTaken):
        bench.follow(ADMIN.forget("q", "l", give_back=True))
    bench.expire_lease()
    with pytest.raises(QueueError, match="has claim 1 open: give its messages back first"):
        bench.follow(ADMIN.forget("q", "l"))
    assert bench.follow(ADMIN.forget("q", "l", give_back=True)) is True
    assert bench.follow(ADMIN.forget("q", "l")) is False
    assert bench.leases() == []
    assert bench.db.lrange(keys.queue("q"), 0, -1) == [b"a", b"b"]
    left = {key for key in bench.db.keys("*") if not key.startswith(b"LASTACTION")}
    assert left == {keys.queue("q").encode()}


def test_deleting_a_lease_requeues_messages_that_only_it_was_to_receive(
    bench: GomqLeaseBench,
) -> None:
    bench.publish(b"a", b"b", b"c")
    request = bench.attached()
    bench.claim(request, count=1)
    bench.acknowledge(request)
    bench.expire_lease()
    assert bench.follow(ADMIN.forget("q", "l")) is True
    assert bench.db.lrange(keys.queue("q"), 0, -1) == [b"b", b"c"]
