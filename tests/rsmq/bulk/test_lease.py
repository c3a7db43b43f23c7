"""Leases on RSMQ queues, on each server: claims that outlive their makers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tambomq.bulk.lease_model import AckCounts, Claim, LeaseRequest, body_digest
from tambomq.errors import InvalidFormat, LeaseLost, LeaseTaken, QueueError, QueueNotFound
from tambomq.rsmq import Rsmq
from tambomq.rsmq.bulk.lease import RsmqLeaseOps
from tambomq.rsmq.bulk.lease_admin import RsmqLeaseAdminOps
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops import settle as settle_ops
from tests.leasing import LeaseBench
from tests.servers import Server

KEYS = Keys()
OPS = RsmqLeaseOps(KEYS)
ADMIN = RsmqLeaseAdminOps(KEYS)


class RsmqLeaseBench(LeaseBench):
    """A queue of RSMQ."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, OPS, ADMIN)
        self.client = Rsmq(server.url)
        self.client.create_queue("q", maxsize=-1)

    def close(self) -> None:
        self.client.close()
        super().close()

    def ledger(self, lease: str = "l") -> str:
        return KEYS.ledger("q", lease)

    def ids(self, request: LeaseRequest) -> list[str]:
        members = self.store.run(OPS.members(request, 0, 10_000))
        return [member.id.decode() for member in members]

    def expire_claim(self) -> None:
        super().expire_claim()
        for message in self.client.peek_messages("q", 1000):
            self.db.zadd(KEYS.messages("q"), {message.id: 1})


@pytest.fixture
def bench(each_server: Server) -> Iterator[RsmqLeaseBench]:
    bench = RsmqLeaseBench(each_server)
    yield bench
    bench.close()


def test_claimed_messages_are_hidden_and_count_as_received(bench: RsmqLeaseBench) -> None:
    sent = bench.client.send_messages("q", [b"a", b"b", b"c"])
    request = bench.attached()
    assert bench.claim(request, count=2) == Claim(2, 2, "m")
    assert bench.ids(request) == sent[:2]
    assert [m.body for m in bench.client.receive_messages("q", 5)] == [b"c"]
    (first, *_) = bench.client.peek_messages("q", 3)
    assert first.rc == 1
    assert bench.client.get_queue_attributes("q").totalrecv == 3


def test_a_claim_keeps_when_messages_were_first_received(bench: RsmqLeaseBench) -> None:
    sent = bench.client.send_messages("q", [b"x"] * 9)
    data = KEYS.data("q")
    for id, rc in ((sent[2], 1), (sent[5], 41), (sent[7], "damaged"), (sent[8], 3)):
        bench.db.hset(data, mapping={f"{id}:rc": rc, f"{id}:fr": 77})
    bench.db.hdel(data, f"{sent[8]}:fr")
    request = bench.attached()
    assert bench.claim(request).size == 9
    counts = [bench.db.hget(data, f"{id}:rc") for id in sent]
    assert counts == [b"1", b"1", b"2", b"1", b"1", b"42", b"1", b"1", b"4"]
    firsts = [bench.db.hget(data, f"{id}:fr") == b"77" for id in sent]
    assert firsts == [index in (2, 5) for index in range(9)]
    assert None not in [bench.db.hget(data, f"{id}:fr") for id in sent]
    assert bench.acknowledge(request) == AckCounts(done=9)


def test_a_claim_of_many_is_made_in_chunks_and_ended_in_chunks(bench: RsmqLeaseBench) -> None:
    sent = bench.client.send_messages("q", [b"x" * (n % 700) for n in range(2500)])
    request = bench.attached()
    assert bench.claim(request, count=2300) == Claim(2300, 2300, "m")
    assert bench.ids(request) == sent[:2300]
    assert bench.acknowledge(request) == AckCounts(done=2300)
    assert [m.id for m in bench.client.peek_messages("q", 1000)] == sent[2300:]
    assert bench.claim(request, 2, count=2300) == Claim(200, 200, "m")


def test_a_claim_whose_reply_was_lost_is_returned_again(bench: RsmqLeaseBench) -> None:
    bench.client.send_messages("q", [b"a", b"b"])
    first = bench.attached()
    bench.claim(first, claim_token="old")
    members = bench.ids(first)
    bench.client.send_message("q", b"late")
    bench.expire_lease()
    second = bench.attached("two")
    assert bench.claim(second, claim_token="new") == Claim(2, 0, "old")
    assert bench.ids(second) == members
    assert bench.follow(OPS.prune(second, 2)) == 2


def test_the_ledger_has_a_digest_of_each_body(bench: RsmqLeaseBench) -> None:
    bodies = [b"", b"short", b"x" * 512, b"y" * 513, bytes(range(256)) * 300]
    bench.client.send_messages("q", bodies)
    request = bench.attached()
    bench.claim(request)
    members = bench.store.run(OPS.members(request, 0, 10))
    assert [member.digest for member in members] == [body_digest(body) for body in bodies]


def test_an_acknowledgement_is_done_once_however_often_it_comes(bench: RsmqLeaseBench) -> None:
    bench.client.send_messages("q", [b"a", b"b"])
    request = bench.attached()
    bench.claim(request, count=1)
    assert bench.acknowledge(request) == AckCounts(done=1)
    assert bench.acknowledge(request) == AckCounts()
    assert bench.claim(request, 2, claim_token="next").size == 1
    assert bench.acknowledge(request) == AckCounts()
    assert bench.store.run(OPS.claim_size(request)) == 1
    assert bench.db.hlen(KEYS.data("q")) == 5 + 2 + 3


def test_a_lease_is_one_query_s_while_that_is_alive(bench: RsmqLeaseBench) -> None:
    bench.attached()
    refused = bench.store.run(OPS.attach(LeaseRequest("q", "l", "two")))
    assert (refused.acquired, refused.holder) == (False, "driver one")
    assert 0 < refused.until_ms - refused.now_ms <= 60_000
    bench.attached("two", "other")


def test_a_replaced_owner_changes_nothing_any_more(bench: RsmqLeaseBench) -> None:
    bench.client.send_messages("q", [b"a", b"b"])
    old = bench.attached()
    bench.claim(old, count=1)
    bench.expire_lease()
    new = bench.attached("two")
    before = bench.db.hgetall(KEYS.ledger("q", "l")), bench.client.peek_messages("q", 5)
    for plan in (
        OPS.claim(old, 1, "m", 5),
        OPS.acknowledge(old, 1, "m"),
        OPS.renew(old),
        OPS.prune(old, 1),
        OPS.clear_verdicts(old),
        OPS.write_verdicts(old, 1, "m", [(bench.ids(new)[0], "dstale")]),
    ):
        with pytest.raises(QueueError, match="lost: driver two has it now"):
            bench.follow(plan)
    with pytest.raises(QueueError, match="driver two"):
        bench.store.run(OPS.heartbeat(old))
    assert not bench.store.run(OPS.resign(old))
    after = bench.db.hgetall(KEYS.ledger("q", "l")), bench.client.peek_messages("q", 5)
    assert before == after
    assert bench.acknowledge(new) == AckCounts(done=1)


def test_a_lease_that_is_given_up_is_free_at_once_and_keeps_its_claim(
    bench: RsmqLeaseBench,
) -> None:
    bench.client.send_message("q", b"a")
    old = bench.attached()
    bench.claim(old)
    assert bench.store.run(OPS.resign(old))
    state = bench.store.run(OPS.attach(LeaseRequest("q", "l", "two")))
    assert (state.acquired, state.claim, state.claim_token, state.lapsed) == (True, 1, "m", False)


def test_renewed_messages_stay_hidden_and_lost_ones_are_left_alone(bench: RsmqLeaseBench) -> None:
    bench.client.send_messages("q", [b"a", b"b"])
    request = bench.attached()
    bench.claim(request)
    bench.expire_claim()
    taken = bench.client.receive_message("q", vt=5)
    assert taken is not None
    assert bench.follow(OPS.renew(request)) == 1
    found = {m.id: m.visible_at for m in bench.client.peek_messages("q", 5)}
    assert found.pop(taken.id) == taken.visible_at
    assert min(found.values()) > taken.visible_at + 60_000


def test_the_claim_of_a_dead_query_is_released_and_nothing_is_lost(
    bench: RsmqLeaseBench,
) -> None:
    sent = bench.client.send_messages("q", [b"a", b"b"])
    dead = bench.attached()
    bench.claim(dead)
    assert bench.follow(OPS.release_expired("q")) == {}
    bench.expire_lease()
    assert bench.follow(OPS.release_expired("q")) == {}
    bench.expire_claim()
    assert bench.follow(OPS.release_expired("q", except_lease="l")) == {}
    assert bench.follow(OPS.release_expired("q")) == {"l": 2}
    other = bench.attached("two", "other")
    bench.claim(other)
    assert bench.ids(other) == sent
    with pytest.raises(QueueError, match="it was released"):
        bench.acknowledge(dead)
    back = bench.store.run(OPS.attach(dead))
    assert (back.acquired, back.claim, back.released) == (True, 0, 1)


def test_an_unread_claim_drops_messages_that_others_received(bench: RsmqLeaseBench) -> None:
    a, b, c = bench.client.send_messages("q", [b"a", b"b", b"c"])
    bench.claim(bench.attached())
    bench.expire_claim()
    assert (taken := bench.client.receive_message("q"))
    assert taken.id == a
    bench.client.delete_message("q", b)
    new = bench.attached("two")
    assert bench.follow(OPS.prune(new, 3)) == 1
    assert bench.ids(new) == [c]
    bench.client.delete_message("q", c)
    assert bench.follow(OPS.prune(new, 1)) == 0
    bench.client.send_message("q", b"d")
    assert bench.claim(new, claim_token="fresh") == Claim(1, 1, "fresh")


def test_a_message_that_another_consumer_has_received_since_is_not_deleted(
    bench: RsmqLeaseBench,
) -> None:
    bench.client.send_messages("q", [b"a", b"b"])
    request = bench.attached()
    bench.claim(request)
    bench.expire_claim()
    taken = bench.client.receive_message("q")
    assert bench.acknowledge(request) == AckCounts(done=1, lost=1)
    assert taken is not None
    assert bench.store.run(settle_ops.delete(KEYS, "q", taken.id, receipt=taken.receipt))


def test_another_checkpoint_s_claim_is_neither_ended_nor_counted(bench: RsmqLeaseBench) -> None:
    bench.client.send_messages("q", [b"a", b"b"])
    request = bench.attached()
    bench.claim(request, count=1)
    with pytest.raises(QueueError, match="is at claim 1, which this checkpoint does not know"):
        bench.acknowledge(request, claim_token="other")
    with pytest.raises(QueueError, match="does not know"):
        bench.acknowledge(request, number=7)
    with pytest.raises(QueueError, match="is at claim 0"):
        bench.claim(request, 3)
    bench.acknowledge(request)
    with pytest.raises(QueueError, match="is at claim 1"):
        bench.claim(request, 1)


def test_a_checkpoint_goes_on_where_a_ledger_is_new(bench: RsmqLeaseBench) -> None:
    bench.client.send_message("q", b"a")
    request = bench.attached()
    assert bench.acknowledge(request, number=7, claim_token="gone") == AckCounts()
    assert bench.claim(request, 8).size == 1


def test_verdicts_are_carried_out_when_the_claim_ends(bench: RsmqLeaseBench) -> None:
    done, again, dead = bench.client.send_messages("q", [b"done", b"again", b"dead"])
    request = bench.attached()
    bench.claim(request)
    verdicts = [(done, ""), (again, "r0"), (dead, "dno such customer")]
    bench.follow(OPS.write_verdicts(request, 1, "m", verdicts))
    assert len(bench.client.peek_messages("q", 5)) == 3
    assert bench.acknowledge(request) == AckCounts(done=1, retried=1, dead=1)
    (left,) = bench.client.peek_messages("q", 5)
    assert (left.id, left.rc) == (again, 1)
    (buried,) = bench.client.peek_messages("q-dead", 5)
    assert (buried.id, buried.body, buried.reason) == (dead, b"dead", "no such customer")
    assert bench.claim(request, 2).size == 1
    assert bench.acknowledge(request, 2) == AckCounts(done=1)
    assert not bench.db.exists(KEYS.verdicts("q", "l"))


def test_the_last_verdict_counts(bench: RsmqLeaseBench) -> None:
    (id,) = bench.client.send_messages("q", [b"a"])
    request = bench.attached()
    bench.claim(request)
    bench.follow(OPS.write_verdicts(request, 1, "m", [(id, "dwhy")]))
    bench.follow(OPS.write_verdicts(request, 1, "m", [(id, "")]))
    assert bench.acknowledge(request) == AckCounts(done=1)


def test_a_verdict_about_a_claim_that_is_over_is_refused(bench: RsmqLeaseBench) -> None:
    request = bench.attached()
    with pytest.raises(QueueError, match="claim 3 of lease 'l' on queue 'q' is not open"):
        bench.follow(OPS.write_verdicts(request, 3, "m", [("id", "r0")]))


def test_a_verdict_about_a_claim_whose_number_is_used_again_is_refused(
    bench: RsmqLeaseBench,
) -> None:
    bench.client.send_message("q", b"a")
    old = bench.attached()
    bench.claim(old, claim_token="first")
    (id,) = bench.ids(old)
    bench.expire_claim()
    assert bench.follow(OPS.release_expired("q")) == {"l": 1}
    # The same owner and number as before: only the claim's token differs.
    assert bench.attached() == old
    assert bench.claim(old, claim_token="second").size == 1
    with pytest.raises(QueueError, match="its verdicts come too late"):
        bench.follow(OPS.write_verdicts(old, 1, "first", [(id, "dstale")]))
    assert bench.acknowledge(old, claim_token="second") == AckCounts(done=1)


def test_a_new_owner_carries_out_or_clears_the_verdicts_of_an_earlier_one(
    bench: RsmqLeaseBench,
) -> None:
    bench.client.send_message("q", b"a")
    old = bench.attached()
    for number, is_run_again in ((1, True), (2, False)):
        bench.claim(old, number)
        (id,) = bench.ids(old)
        bench.follow(OPS.write_verdicts(old, number, "m", [(id, "dwhy")]))
        bench.expire_lease()
        old = bench.attached(f"owner after {number}")
        if is_run_again:
            bench.follow(OPS.clear_verdicts(old))
            bench.client.send_message("q", b"a")
        wanted = AckCounts(done=1) if is_run_again else AckCounts(dead=1)
        assert bench.acknowledge(old, number) == wanted


def test_ids_without_a_body_are_put_aside(bench: RsmqLeaseBench) -> None:
    bench.db.zadd(KEYS.messages("q"), {"bare": 1, "other": 2})
    bench.client.send_message("q", b"a")
    assert bench.claim(bench.attached(), count=1) == Claim(1, 1, "m")


def test_names_and_queues_are_checked(bench: RsmqLeaseBench) -> None:
    with pytest.raises(InvalidFormat):
        OPS.attach(LeaseRequest("q", "a:b", "one"))
    missing = LeaseRequest("none", "l", "one")
    bench.store.run(OPS.attach(missing))
    with pytest.raises(QueueNotFound):
        bench.claim(missing)


# ── for people ───────────────────────────────────────────────────────────────


def test_leases_are_listed_with_holder_and_open_claim(bench: RsmqLeaseBench) -> None:
    assert bench.leases() == []
    bench.client.send_messages("q", [b"a"] * 3)
    bench.claim(bench.attached())
    bench.attached("two", "idle")
    assert bench.leases() == [
        ("idle", "held", "driver two", 0, 0),
        ("l", "held", "driver one", 1, 3),
    ]
    bench.expire_lease()
    bench.expire_lease("idle")
    assert bench.leases() == [
        ("idle", "free", "driver two", 0, 0),
        ("l", "away", "driver one", 1, 3),
    ]
    bench.expire_claim()
    assert bench.leases()[1] == ("l", "dead", "driver one", 1, 3)
    bench.follow(OPS.release_expired("q"))
    assert bench.leases()[1] == ("l", "free", "", 0, 0)


def test_a_dead_query_s_messages_are_given_back_early(bench: RsmqLeaseBench) -> None:
    sent = bench.client.send_messages("q", [b"a"] * 1500)
    expired = bench.attached()
    bench.claim(expired, count=1500)
    with pytest.raises(LeaseTaken, match="held by driver one, which is alive") as refused:
        bench.follow(ADMIN.release("q", "l"))
    assert (refused.value.lease, refused.value.holder) == ("l", "driver one")
    assert bench.client.receive_message("q") is None
    bench.expire_lease()
    bench.client.delete_message("q", sent[0])
    assert bench.follow(ADMIN.release("q", "l")) == 1499
    assert bench.follow(ADMIN.release("q", "l")) == 0
    assert bench.client.get_queue_attributes("q").hiddenmsgs == 0
    with pytest.raises(LeaseLost, match="it was released"):
        bench.acknowledge(expired)
    back = bench.store.run(OPS.attach(expired))
    assert (back.claim, back.released) == (0, 1)


def test_a_lease_without_holder_and_claim_can_be_forgotten(
    bench: RsmqLeaseBench,
) -> None:
    bench.client.send_messages("q", [b"a", b"b"])
    bench.claim(bench.attached())
    with pytest.raises(LeaseTaken):
        bench.follow(ADMIN.forget("q", "l", give_back=True))
    bench.expire_lease()
    with pytest.raises(QueueError, match="has claim 1 open: give its messages back first"):
        bench.follow(ADMIN.forget("q", "l"))
    assert bench.follow(ADMIN.forget("q", "l", give_back=True)) is True
    assert bench.follow(ADMIN.forget("q", "l")) is False
    assert bench.leases() == []
    keys = [b"rsmq:QUEUES", b"rsmq:q", b"rsmq:q:Q", b"rsmq:q:receipts"]
    assert sorted(bench.db.keys()) == keys
    assert len(bench.client.receive_messages("q", 5)) == 2
