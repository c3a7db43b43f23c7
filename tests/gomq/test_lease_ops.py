"""Leases on GOMQ's keys, on each server: claims that outlive their makers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tambomq.errors import InvalidFormat, LeaseLost, LeaseTaken, QueueError
from tambomq.gomq import keys, lease_admin_ops, lease_ops, leave_ops, ops
from tambomq.gomq.model import Options
from tambomq.store.ledger import Claim, Settled, Term
from tests.leasing import LeaseStage
from tests.servers import Server

OPTIONS = Options()
ME = keys.lessee("l")


class Stage(LeaseStage):
    """A key of GOMQ's."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, lease_ops, lease_admin_ops, OPTIONS)

    def ledger(self, lease: str = "l") -> str:
        return keys.ledger("q", lease)

    def publish(self, *messages: bytes) -> None:
        self.store.run(ops.push("q", messages))

    def members(self, term: Term, mark: str = "m") -> list[bytes]:
        return self.store.run(lease_ops.members(term, mark, 0, 1000))

    def waiting(self) -> list[bytes]:
        main: list[bytes] = self.db.lrange(keys.queue("q"), 0, -1)
        own: list[bytes] = self.db.lrange(keys.messages("q", ME, ME), 0, -1)
        return own + main

    def let_all_time_pass(self) -> None:
        super().let_all_time_pass()
        self.db.set(keys.last_action(ME), 1)


@pytest.fixture
def stage(each_server: Server) -> Iterator[Stage]:
    stage = Stage(each_server)
    yield stage
    stage.close()


def test_what_is_claimed_is_kept_until_it_is_acknowledged(stage: Stage) -> None:
    stage.publish(b"a", b"b", b"c")
    term = stage.attached()
    assert stage.claim(term, count=2) == Claim(2, 2, "m")
    assert stage.members(term) == [b"a", b"b"]
    assert stage.members(term, "other") == []
    assert stage.store.run(lease_ops.size(OPTIONS, term)) == 2
    assert stage.waiting() == [b"c"]
    assert stage.end(term) == Settled(done=2)
    assert stage.end(term) == Settled()
    assert stage.claim(term, 2) == Claim(1, 1, "m")
    assert stage.end(term, 2) == Settled(done=1)
    assert stage.claim(term, 3) == Claim(0, 0, "")


def test_a_claim_that_was_never_told_is_handed_out_again(stage: Stage) -> None:
    stage.publish(b"a", b"b")
    first = stage.attached()
    stage.claim(first, mark="old")
    stage.publish(b"late")
    stage.let_the_lease_end()
    second = stage.attached("two")
    assert stage.claim(second, mark="new") == Claim(2, 0, "old")
    assert stage.follow(lease_ops.prune(OPTIONS, second, 2)) == 2
    assert stage.members(second, "old") == [b"a", b"b"]


def test_who_was_replaced_changes_nothing_any_more(stage: Stage) -> None:
    stage.publish(b"a", b"b")
    old = stage.attached()
    stage.claim(old, count=1)
    assert not stage.store.run(lease_ops.attach(OPTIONS, Term("q", "l", "two"))).ours
    stage.let_the_lease_end()
    new = stage.attached("two")
    for plan in (
        lease_ops.claim(OPTIONS, old, 1, "m", 5),
        lease_ops.acknowledge(OPTIONS, old, 1, "m"),
        lease_ops.renew(OPTIONS, old),
    ):
        with pytest.raises(QueueError, match="lost: driver two has it now"):
            stage.follow(plan)
    assert not stage.store.run(lease_ops.resign(OPTIONS, old))
    assert stage.members(new) == [b"a"]
    assert stage.end(new) == Settled(done=1)
    assert stage.store.run(lease_ops.resign(OPTIONS, new))
    stage.attached("three")


def test_a_lease_that_is_renewed_is_not_disconnected(stage: Stage) -> None:
    stage.publish(b"a")
    term = stage.attached()
    stage.claim(term)
    stage.let_all_time_pass()
    assert stage.follow(lease_ops.renew(OPTIONS, term)) == 0
    assert stage.store.follow(leave_ops.reap(ME, OPTIONS)).peers == 0
    assert stage.members(term) == [b"a"]


def test_a_dead_query_s_claim_goes_back_and_nothing_is_lost(stage: Stage) -> None:
    stage.publish(b"a", b"b", b"c")
    dead = stage.attached()
    stage.claim(dead, count=2)
    assert stage.follow(lease_ops.release_expired(OPTIONS, "q")) == {}
    stage.let_all_time_pass()
    assert stage.follow(lease_ops.release_expired(OPTIONS, "q", but="l")) == {}
    assert stage.follow(lease_ops.release_expired(OPTIONS, "q")) == {"l": 1}
    assert stage.waiting() == [b"a", b"b", b"c"]
    other = stage.attached("two", "other")
    assert stage.claim(other).size == 3
    with pytest.raises(QueueError, match="it was given up"):
        stage.end(dead)
    back = stage.store.run(lease_ops.attach(OPTIONS, dead))
    assert (back.ours, back.claim, back.released, back.lapsed) == (True, 0, 1, True)


def test_a_claim_that_a_server_took_away_is_noticed(stage: Stage) -> None:
    stage.publish(b"a")
    term = stage.attached()
    stage.claim(term)
    stage.let_all_time_pass()
    assert stage.store.follow(leave_ops.reap(ME, OPTIONS)).returned == 1
    assert stage.follow(lease_ops.renew(OPTIONS, term)) == 1
    assert stage.members(term) == []
    assert stage.end(term) == Settled(lost=1)
    assert stage.waiting() == [b"a"]


def test_a_claim_nobody_has_seen_and_that_was_taken_away_is_made_anew(stage: Stage) -> None:
    stage.publish(b"a")
    stage.claim(stage.attached(), mark="old")
    stage.let_all_time_pass()
    stage.store.follow(leave_ops.reap(ME, OPTIONS))
    new = stage.attached("two")
    assert stage.claim(new, mark="new") == Claim(1, 1, "new")


def test_another_checkpoint_s_claim_is_neither_ended_nor_counted(stage: Stage) -> None:
    stage.publish(b"a", b"b")
    term = stage.attached()
    stage.claim(term, count=1)
    with pytest.raises(QueueError, match="does not know"):
        stage.end(term, mark="other")
    with pytest.raises(QueueError, match="is at claim 0"):
        stage.claim(term, 3)
    assert stage.members(term) == [b"a"]


def test_a_lease_has_one_key(stage: Stage) -> None:
    term = stage.attached()
    stage.claim(term)
    with pytest.raises(QueueError, match="lease 'l' has another key than 'other'"):
        stage.claim(stage.attached(queue="other"))
    stage.publish(b"a")
    assert stage.claim(term).size == 1


def test_names_are_checked() -> None:
    with pytest.raises(InvalidFormat):
        lease_ops.attach(OPTIONS, Term("q", "a:b", "one"))


# ── for people ───────────────────────────────────────────────────────────────


def test_leases_are_listed_with_who_has_them_and_what_they_have(stage: Stage) -> None:
    assert stage.seen() == []
    stage.publish(b"a", b"b", b"c")
    stage.claim(stage.attached())
    assert stage.seen() == [("l", "held", "driver one", 1, 3)]
    stage.let_the_lease_end()
    assert stage.seen() == [("l", "away", "driver one", 1, 3)]
    stage.let_all_time_pass()
    assert stage.seen() == [("l", "dead", "driver one", 1, 3)]
    stage.follow(lease_ops.release_expired(OPTIONS, "q"))
    assert stage.seen() == [("l", "free", "", 0, 0)]


def test_what_a_query_that_is_gone_had_is_given_back_before_its_time(stage: Stage) -> None:
    stage.publish(b"a", b"b", b"c")
    gone = stage.attached()
    stage.claim(gone, count=2)
    with pytest.raises(LeaseTaken, match="held by driver one, which is alive"):
        stage.follow(lease_admin_ops.release(OPTIONS, "q", "l"))
    stage.let_the_lease_end()
    assert stage.follow(lease_admin_ops.release(OPTIONS, "q", "l")) == 2
    assert stage.follow(lease_admin_ops.release(OPTIONS, "q", "l")) == 0
    assert stage.db.lrange(keys.queue("q"), 0, -1) == [b"a", b"b", b"c"]
    with pytest.raises(LeaseLost, match="it was given up"):
        stage.end(gone)


def test_a_lease_is_forgotten_once_nobody_has_it_and_nothing_is_in_it(stage: Stage) -> None:
    stage.publish(b"a", b"b")
    stage.claim(stage.attached(), count=1)
    with pytest.raises(LeaseTaken):
        stage.follow(lease_admin_ops.forget(OPTIONS, "q", "l", give_back=True))
    stage.let_the_lease_end()
    with pytest.raises(QueueError, match="has claim 1 open: give its messages back first"):
        stage.follow(lease_admin_ops.forget(OPTIONS, "q", "l"))
    assert stage.follow(lease_admin_ops.forget(OPTIONS, "q", "l", give_back=True)) is True
    assert stage.follow(lease_admin_ops.forget(OPTIONS, "q", "l")) is False
    assert stage.seen() == []
    assert stage.db.lrange(keys.queue("q"), 0, -1) == [b"a", b"b"]
    left = {key for key in stage.db.keys("*") if not key.startswith(b"LASTACTION")}
    assert left == {keys.queue("q").encode()}


def test_what_waited_for_a_lease_alone_is_in_the_main_queue_once_it_is_forgotten(
    stage: Stage,
) -> None:
    stage.publish(b"a", b"b", b"c")
    term = stage.attached()
    stage.claim(term, count=1)
    stage.end(term)
    stage.let_the_lease_end()
    assert stage.follow(lease_admin_ops.forget(OPTIONS, "q", "l")) is True
    assert stage.db.lrange(keys.queue("q"), 0, -1) == [b"b", b"c"]
