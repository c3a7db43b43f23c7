"""Leases on RSMQ queues, on each server: claims that outlive their makers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tambomq.errors import InvalidFormat, LeaseLost, LeaseTaken, QueueError, QueueNotFound
from tambomq.rsmq import Rsmq, lease_admin_ops, lease_ops, settle_ops
from tambomq.rsmq.keys import Keys
from tambomq.store.ledger import Claim, Settled, Term, digest
from tests.leasing import LeaseStage
from tests.servers import Server

KEYS = Keys()


class Stage(LeaseStage):
    """A queue of RSMQ."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, lease_ops, lease_admin_ops, KEYS)
        self.client = Rsmq(server.url)
        self.client.create_queue("q", maxsize=-1)

    def close(self) -> None:
        self.client.close()
        super().close()

    def ledger(self, lease: str = "l") -> str:
        return KEYS.ledger("q", lease)

    def ids(self, term: Term) -> list[str]:
        members = self.store.run(lease_ops.members(KEYS, term, 0, 10_000))
        return [member.id.decode() for member in members]

    def let_all_time_pass(self) -> None:
        super().let_all_time_pass()
        for message in self.client.peek_messages("q", 1000):
            self.db.zadd(KEYS.messages("q"), {message.id: 1})


@pytest.fixture
def stage(each_server: Server) -> Iterator[Stage]:
    stage = Stage(each_server)
    yield stage
    stage.close()


def test_what_is_claimed_is_hidden_and_counted_as_received(stage: Stage) -> None:
    sent = stage.client.send_messages("q", [b"a", b"b", b"c"])
    term = stage.attached()
    assert stage.claim(term, count=2) == Claim(2, 2, "m")
    assert stage.ids(term) == sent[:2]
    assert [m.body for m in stage.client.receive_messages("q", 5)] == [b"c"]
    (first, *_) = stage.client.peek_messages("q", 3)
    assert first.rc == 1
    assert stage.client.get_queue_attributes("q").totalrecv == 3


def test_a_claim_of_many_is_made_in_chunks_and_ended_in_chunks(stage: Stage) -> None:
    sent = stage.client.send_messages("q", [b"x" * (n % 700) for n in range(2500)])
    term = stage.attached()
    assert stage.claim(term, count=2300) == Claim(2300, 2300, "m")
    assert stage.ids(term) == sent[:2300]
    assert stage.end(term) == Settled(done=2300)
    assert [m.id for m in stage.client.peek_messages("q", 1000)] == sent[2300:]
    assert stage.claim(term, 2, count=2300) == Claim(200, 200, "m")


def test_a_claim_that_was_never_told_is_handed_out_again(stage: Stage) -> None:
    stage.client.send_messages("q", [b"a", b"b"])
    first = stage.attached()
    stage.claim(first, mark="old")
    members = stage.ids(first)
    stage.client.send_message("q", b"late")
    stage.let_the_lease_end()
    second = stage.attached("two")
    assert stage.claim(second, mark="new") == Claim(2, 0, "old")
    assert stage.ids(second) == members
    assert stage.follow(lease_ops.prune(KEYS, second, 2)) == 2


def test_the_ledger_knows_each_body_by_its_digest(stage: Stage) -> None:
    bodies = [b"", b"short", b"x" * 512, b"y" * 513, bytes(range(256)) * 300]
    stage.client.send_messages("q", bodies)
    term = stage.attached()
    stage.claim(term)
    members = stage.store.run(lease_ops.members(KEYS, term, 0, 10))
    assert [member.digest for member in members] == [digest(body) for body in bodies]


def test_an_acknowledgement_is_done_once_however_often_it_comes(stage: Stage) -> None:
    stage.client.send_messages("q", [b"a", b"b"])
    term = stage.attached()
    stage.claim(term, count=1)
    assert stage.end(term) == Settled(done=1)
    assert stage.end(term) == Settled()
    assert stage.claim(term, 2, mark="next").size == 1
    assert stage.end(term) == Settled()
    assert stage.store.run(lease_ops.size(KEYS, term)) == 1
    assert stage.db.hlen(KEYS.data("q")) == 5 + 2 + 3


def test_a_lease_is_one_query_s_while_that_is_alive(stage: Stage) -> None:
    stage.attached()
    refused = stage.store.run(lease_ops.attach(KEYS, Term("q", "l", "two")))
    assert (refused.ours, refused.label) == (False, "driver one")
    assert 0 < refused.until_ms - refused.now_ms <= 60_000
    stage.attached("two", "other")


def test_who_was_replaced_changes_nothing_any_more(stage: Stage) -> None:
    stage.client.send_messages("q", [b"a", b"b"])
    old = stage.attached()
    stage.claim(old, count=1)
    stage.let_the_lease_end()
    new = stage.attached("two")
    before = stage.db.hgetall(KEYS.ledger("q", "l")), stage.client.peek_messages("q", 5)
    for plan in (
        lease_ops.claim(KEYS, old, 1, "m", 5),
        lease_ops.acknowledge(KEYS, old, 1, "m"),
        lease_ops.renew(KEYS, old),
        lease_ops.prune(KEYS, old, 1),
    ):
        with pytest.raises(QueueError, match="lost: driver two has it now"):
            stage.follow(plan)
    with pytest.raises(QueueError, match="driver two"):
        stage.store.run(lease_ops.beat(KEYS, old))
    assert not stage.store.run(lease_ops.resign(KEYS, old))
    after = stage.db.hgetall(KEYS.ledger("q", "l")), stage.client.peek_messages("q", 5)
    assert before == after
    assert stage.end(new) == Settled(done=1)


def test_a_lease_that_is_given_up_is_free_at_once_and_keeps_its_claim(stage: Stage) -> None:
    stage.client.send_message("q", b"a")
    old = stage.attached()
    stage.claim(old)
    assert stage.store.run(lease_ops.resign(KEYS, old))
    standing = stage.store.run(lease_ops.attach(KEYS, Term("q", "l", "two")))
    assert (standing.ours, standing.claim, standing.mark, standing.lapsed) == (True, 1, "m", False)


def test_renewed_messages_stay_hidden_and_lost_ones_are_left_alone(stage: Stage) -> None:
    stage.client.send_messages("q", [b"a", b"b"])
    term = stage.attached()
    stage.claim(term)
    stage.let_all_time_pass()
    taken = stage.client.receive_message("q", vt=5)
    assert taken is not None
    assert stage.follow(lease_ops.renew(KEYS, term)) == 1
    found = {m.id: m.visible_at for m in stage.client.peek_messages("q", 5)}
    assert found.pop(taken.id) == taken.visible_at
    assert min(found.values()) > taken.visible_at + 60_000


def test_a_dead_query_s_claim_is_given_up_for_others_and_nothing_is_lost(stage: Stage) -> None:
    sent = stage.client.send_messages("q", [b"a", b"b"])
    dead = stage.attached()
    stage.claim(dead)
    assert stage.follow(lease_ops.release_expired(KEYS, "q")) == {}
    stage.let_the_lease_end()
    assert stage.follow(lease_ops.release_expired(KEYS, "q")) == {}
    stage.let_all_time_pass()
    assert stage.follow(lease_ops.release_expired(KEYS, "q", but="l")) == {}
    assert stage.follow(lease_ops.release_expired(KEYS, "q")) == {"l": 2}
    other = stage.attached("two", "other")
    stage.claim(other)
    assert stage.ids(other) == sent
    with pytest.raises(QueueError, match="it was given up"):
        stage.end(dead)
    back = stage.store.run(lease_ops.attach(KEYS, dead))
    assert (back.ours, back.claim, back.released) == (True, 0, 1)


def test_a_claim_nobody_has_seen_is_pruned_of_what_others_have_had(stage: Stage) -> None:
    a, b, c = stage.client.send_messages("q", [b"a", b"b", b"c"])
    stage.claim(stage.attached())
    stage.let_all_time_pass()
    assert (taken := stage.client.receive_message("q"))
    assert taken.id == a
    stage.client.delete_message("q", b)
    new = stage.attached("two")
    assert stage.follow(lease_ops.prune(KEYS, new, 3)) == 1
    assert stage.ids(new) == [c]
    stage.client.delete_message("q", c)
    assert stage.follow(lease_ops.prune(KEYS, new, 1)) == 0
    stage.client.send_message("q", b"d")
    assert stage.claim(new, mark="fresh") == Claim(1, 1, "fresh")


def test_what_another_has_received_since_is_not_deleted(stage: Stage) -> None:
    stage.client.send_messages("q", [b"a", b"b"])
    term = stage.attached()
    stage.claim(term)
    stage.let_all_time_pass()
    taken = stage.client.receive_message("q")
    assert stage.end(term) == Settled(done=1, lost=1)
    assert taken is not None
    assert stage.store.run(settle_ops.delete(KEYS, "q", taken.id, receipt=taken.receipt))


def test_another_checkpoint_s_claim_is_neither_ended_nor_counted(stage: Stage) -> None:
    stage.client.send_messages("q", [b"a", b"b"])
    term = stage.attached()
    stage.claim(term, count=1)
    with pytest.raises(QueueError, match="is at claim 1, which this checkpoint does not know"):
        stage.end(term, mark="other")
    with pytest.raises(QueueError, match="does not know"):
        stage.end(term, number=7)
    with pytest.raises(QueueError, match="is at claim 0"):
        stage.claim(term, 3)
    stage.end(term)
    with pytest.raises(QueueError, match="is at claim 1"):
        stage.claim(term, 1)


def test_a_checkpoint_goes_on_where_a_ledger_is_new(stage: Stage) -> None:
    stage.client.send_message("q", b"a")
    term = stage.attached()
    assert stage.end(term, number=7, mark="gone") == Settled()
    assert stage.claim(term, 8).size == 1


def test_verdicts_are_carried_out_when_the_claim_ends(stage: Stage) -> None:
    done, again, dead = stage.client.send_messages("q", [b"done", b"again", b"dead"])
    term = stage.attached()
    stage.claim(term)
    verdicts = [(done, ""), (again, "r0"), (dead, "dno such customer")]
    stage.follow(lease_ops.judge(KEYS, "q", "l", 1, verdicts))
    assert len(stage.client.peek_messages("q", 5)) == 3
    assert stage.end(term) == Settled(done=1, retried=1, dead=1)
    (left,) = stage.client.peek_messages("q", 5)
    assert (left.id, left.rc) == (again, 1)
    (buried,) = stage.client.peek_messages("q-dead", 5)
    assert (buried.id, buried.body, buried.reason) == (dead, b"dead", "no such customer")
    assert stage.claim(term, 2).size == 1
    assert stage.end(term, 2) == Settled(done=1)
    assert not stage.db.exists(KEYS.verdicts("q", "l"))


def test_the_last_verdict_counts(stage: Stage) -> None:
    (id,) = stage.client.send_messages("q", [b"a"])
    term = stage.attached()
    stage.claim(term)
    stage.follow(lease_ops.judge(KEYS, "q", "l", 1, [(id, "dwhy")]))
    stage.follow(lease_ops.judge(KEYS, "q", "l", 1, [(id, "")]))
    assert stage.end(term) == Settled(done=1)


def test_a_verdict_about_a_claim_that_is_over_is_refused(stage: Stage) -> None:
    with pytest.raises(QueueError, match="claim 3 of lease 'l' on queue 'q' is not open"):
        stage.follow(lease_ops.judge(KEYS, "q", "l", 3, [("id", "r0")]))


def test_ids_without_a_body_are_put_aside(stage: Stage) -> None:
    stage.db.zadd(KEYS.messages("q"), {"bare": 1, "other": 2})
    stage.client.send_message("q", b"a")
    assert stage.claim(stage.attached(), count=1) == Claim(1, 1, "m")


def test_names_and_queues_are_checked(stage: Stage) -> None:
    with pytest.raises(InvalidFormat):
        lease_ops.attach(KEYS, Term("q", "a:b", "one"))
    missing = Term("none", "l", "one")
    stage.store.run(lease_ops.attach(KEYS, missing))
    with pytest.raises(QueueNotFound):
        stage.claim(missing)


# ── for people ───────────────────────────────────────────────────────────────


def test_leases_are_listed_with_who_has_them_and_what_they_have(stage: Stage) -> None:
    assert stage.seen() == []
    stage.client.send_messages("q", [b"a"] * 3)
    stage.claim(stage.attached())
    stage.attached("two", "idle")
    assert stage.seen() == [("idle", "held", "driver two", 0, 0), ("l", "held", "driver one", 1, 3)]
    stage.let_the_lease_end()
    stage.let_the_lease_end("idle")
    assert stage.seen() == [("idle", "free", "driver two", 0, 0), ("l", "away", "driver one", 1, 3)]
    stage.let_all_time_pass()
    assert stage.seen()[1] == ("l", "dead", "driver one", 1, 3)
    stage.follow(lease_ops.release_expired(KEYS, "q"))
    assert stage.seen()[1] == ("l", "free", "", 0, 0)


def test_what_a_query_that_is_gone_had_is_given_back_before_its_time(stage: Stage) -> None:
    sent = stage.client.send_messages("q", [b"a"] * 1500)
    gone = stage.attached()
    stage.claim(gone, count=1500)
    with pytest.raises(LeaseTaken, match="held by driver one, which is alive") as refused:
        stage.follow(lease_admin_ops.release(KEYS, "q", "l"))
    assert (refused.value.lease, refused.value.holder) == ("l", "driver one")
    assert stage.client.receive_message("q") is None
    stage.let_the_lease_end()
    stage.client.delete_message("q", sent[0])
    assert stage.follow(lease_admin_ops.release(KEYS, "q", "l")) == 1499
    assert stage.follow(lease_admin_ops.release(KEYS, "q", "l")) == 0
    assert stage.client.get_queue_attributes("q").hiddenmsgs == 0
    with pytest.raises(LeaseLost, match="it was given up"):
        stage.end(gone)
    back = stage.store.run(lease_ops.attach(KEYS, gone))
    assert (back.claim, back.released) == (0, 1)


def test_a_lease_is_forgotten_once_nobody_has_it_and_nothing_is_in_it(stage: Stage) -> None:
    stage.client.send_messages("q", [b"a", b"b"])
    stage.claim(stage.attached())
    with pytest.raises(LeaseTaken):
        stage.follow(lease_admin_ops.forget(KEYS, "q", "l", give_back=True))
    stage.let_the_lease_end()
    with pytest.raises(QueueError, match="has claim 1 open: give its messages back first"):
        stage.follow(lease_admin_ops.forget(KEYS, "q", "l"))
    assert stage.follow(lease_admin_ops.forget(KEYS, "q", "l", give_back=True)) is True
    assert stage.follow(lease_admin_ops.forget(KEYS, "q", "l")) is False
    assert stage.seen() == []
    keys = [b"rsmq:QUEUES", b"rsmq:q", b"rsmq:q:Q", b"rsmq:q:receipts"]
    assert sorted(stage.db.keys()) == keys
    assert len(stage.client.receive_messages("q", 5)) == 2
