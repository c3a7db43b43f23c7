"""The operations of the protocol on a real server, by both clients."""

from __future__ import annotations

import asyncio
import threading

import pytest
import redis

from tambomq.errors import QueueExists, QueueNotFound
from tambomq.rsmq import AsyncRsmq, Message, QueueAttributes, Rsmq
from tests.rsmq.conftest import Connect
from tests.rsmq.stored import at_rest
from tests.servers import Server, eventually

# ── queues ───────────────────────────────────────────────────────────────────


def test_a_new_queue_has_the_defaults_of_the_specification(client: Rsmq, db: redis.Redis) -> None:
    before = db.time()[0]
    client.create_queue("orders")
    found = client.get_queue_attributes("orders")
    assert before <= found.created <= db.time()[0]
    assert found == QueueAttributes(30, 0, 65536, 0, 0, found.created, found.created, 0, 0)


def test_queues_are_listed_in_order_until_they_are_deleted(client: Rsmq) -> None:
    assert client.list_queues() == []
    for name in ("b", "a.b", "A-1"):
        client.create_queue(name)
    assert client.list_queues() == ["A-1", "a.b", "b"]
    client.delete_queue("a.b")
    assert client.list_queues() == ["A-1", "b"]


def test_a_queue_that_exists_is_left_as_it_is(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q", vt=1)
    client.send_message("q", "x")
    before = at_rest(db)
    with pytest.raises(QueueExists):
        client.create_queue("q", vt=2)
    assert at_rest(db) == before


def test_nothing_is_left_of_a_deleted_queue(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    client.send_messages("q", ["a", "b"])
    client.receive_message("q")
    client.delete_queue("q")
    assert db.dbsize() == 0
    with pytest.raises(QueueNotFound):
        client.delete_queue("q")


def test_a_deleted_queue_can_be_made_again_and_is_empty(client: Rsmq) -> None:
    client.create_queue("q")
    client.send_message("q", "old")
    client.delete_queue("q")
    client.create_queue("q")
    assert client.receive_message("q") is None
    assert client.get_queue_attributes("q").totalsent == 0


def test_only_the_given_attributes_are_changed(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    db.hset("rsmq:q:Q", mapping={"created": 1, "modified": 1})
    changed = client.set_queue_attributes("q", delay=5)
    assert (changed.vt, changed.delay, changed.maxsize) == (30, 5, 65536)
    assert changed.created == 1
    assert changed.modified > 1
    changed = client.set_queue_attributes("q", vt=0, maxsize=-1)
    assert (changed.vt, changed.delay, changed.maxsize) == (0, 5, -1)
    assert client.get_queue_attributes("q") == changed


def test_changed_settings_hold_for_the_next_message(client: Rsmq) -> None:
    client.create_queue("q")
    client.set_queue_attributes("q", vt=0, delay=1000)
    client.send_message("q", "later")
    assert client.receive_message("q") is None
    client.set_queue_attributes("q", delay=0)
    client.send_message("q", "now")
    assert [client.receive_messages("q", 2)[0].text for _ in range(2)] == ["now", "now"]


def test_attributes_count_what_is_sent_received_and_hidden(client: Rsmq) -> None:
    client.create_queue("q")
    client.send_messages("q", ["a", "b", "c", "d"])
    client.send_message("q", "late", delay=100)
    client.receive_messages("q", 2)
    client.pop_message("q")
    found = client.get_queue_attributes("q")
    assert (found.totalsent, found.totalrecv, found.msgs, found.hiddenmsgs) == (5, 3, 4, 3)


def test_a_purge_deletes_messages_and_keeps_settings_and_counters(
    client: Rsmq, db: redis.Redis
) -> None:
    client.create_queue("q", vt=7)
    client.send_messages("q", ["a", "b", "c"])
    client.receive_message("q")
    before = client.get_queue_attributes("q")
    assert client.purge_queue("q") == 3
    assert client.purge_queue("q") == 0
    after = client.get_queue_attributes("q")
    assert (after.vt, after.totalsent, after.totalrecv, after.msgs) == (7, 3, 1, 0)
    assert after.created == before.created
    assert not db.exists("rsmq:q")
    assert db.hlen("rsmq:q:Q") == 7


def test_every_operation_on_a_missing_queue_says_so(client: Rsmq, db: redis.Redis) -> None:
    id = "x" * 32
    for attempt in (
        lambda: client.delete_queue("q"),
        lambda: client.get_queue_attributes("q"),
        lambda: client.set_queue_attributes("q", vt=1),
        lambda: client.get_queue_stats("q"),
        lambda: client.purge_queue("q"),
        lambda: client.send_message("q", ""),
        lambda: client.send_messages("q", [""]),
        lambda: client.receive_message("q"),
        lambda: client.receive_messages("q", 1000),
        lambda: client.pop_message("q"),
        lambda: client.peek_messages("q"),
        lambda: client.delete_message("q", id),
        lambda: client.delete_messages("q", [id]),
        lambda: client.change_message_visibility("q", id, 1),
    ):
        with pytest.raises(QueueNotFound, match="'q' does not exist"):
            attempt()
    assert db.dbsize() == 0


def test_namespaces_do_not_see_each_other(connect: Connect) -> None:
    one, other = connect(ns="one"), connect(ns="{other}")
    one.create_queue("q")
    assert other.list_queues() == []
    other.create_queue("q")
    one.send_message("q", "mine")
    assert other.receive_message("q") is None
    other.delete_queue("q")
    assert one.list_queues() == ["q"]
    assert one.pop_message("q") is not None


# ── messages ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "body",
    ["", "hello", "grüße 🐑 日本\n\0", b"", b"\x00\xff\xfe", bytes(range(256)) * 256, "nil", "-1"],
)
def test_a_body_is_received_as_it_was_sent(client: Rsmq, body: str | bytes) -> None:
    client.create_queue("q")
    client.send_message("q", body)
    expected = body.encode() if isinstance(body, str) else body
    assert [m.body for m in client.peek_messages("q")] == [expected]
    received = client.receive_message("q", vt=0)
    assert received is not None
    assert received.body == expected
    popped = client.pop_message("q")
    assert popped is not None
    assert popped.body == expected


def test_messages_are_received_oldest_first(client: Rsmq) -> None:
    client.create_queue("q")
    sent = [client.send_message("q", str(n)) for n in range(50)]
    assert [m.id for m in client.receive_messages("q", 100)] == sent


def test_a_received_message_has_its_times_and_counts(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q", vt=100)
    id = client.send_message("q", "x")
    first = client.receive_message("q", vt=0)
    assert first is not None
    again = client.receive_message("q")
    assert again is not None
    seconds, micros = db.time()
    now = seconds * 1000 + micros // 1000
    assert (first.id, first.rc, again.id, again.rc) == (id, 1, id, 2)
    assert first.sent <= first.fr == again.fr <= now
    assert first.visible_at == first.fr
    assert again.fr + 100_000 <= again.visible_at <= now + 100_000


def test_a_hidden_message_is_not_received_twice(client: Rsmq) -> None:
    client.create_queue("q")
    client.send_message("q", "x")
    assert client.receive_message("q") is not None
    assert client.receive_message("q") is None
    assert client.pop_message("q") is None


def test_a_message_received_with_a_vt_of_zero_is_visible_at_once(client: Rsmq) -> None:
    client.create_queue("q", vt=0)
    client.send_message("q", "x")
    counts = [m.rc for _ in range(5) for m in client.receive_messages("q", 3)]
    assert counts == [1, 2, 3, 4, 5]


def test_fractions_of_a_second_hide_and_delay(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    client.send_message("q", "x", delay=0.05)
    received = eventually(lambda: client.receive_message("q", vt=0.05))
    assert isinstance(received, Message)
    assert received.fr >= received.sent + 50
    score = db.zscore("rsmq:q", received.id)
    assert score == received.visible_at == received.fr + 50
    again = eventually(lambda: client.receive_message("q"))
    assert isinstance(again, Message)
    assert again.rc == 2


def test_the_delay_of_a_send_overrides_that_of_the_queue(client: Rsmq) -> None:
    client.create_queue("q", delay=1000)
    client.send_message("q", "own")
    client.send_message("q", "none", delay=0)
    client.send_message("q", "longer", delay=2000)
    assert [m.text for m in client.peek_messages("q")] == ["none", "own", "longer"]
    assert [m.text for m in client.receive_messages("q", 3)] == ["none"]


def test_a_pop_receives_and_deletes(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    client.send_message("q", "x")
    client.receive_message("q", vt=0)
    popped = client.pop_message("q")
    assert popped is not None
    assert (popped.text, popped.rc) == ("x", 2)
    assert popped.sent <= popped.fr <= popped.visible_at
    assert client.pop_message("q") is None
    assert not db.exists("rsmq:q")
    assert db.hlen("rsmq:q:Q") == 7
    assert client.get_queue_attributes("q").totalrecv == 2


def test_a_deleted_message_is_gone_with_its_counts(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    id = client.send_message("q", "x")
    client.receive_message("q", vt=0)
    assert client.delete_message("q", id) is True
    assert client.delete_message("q", id) is False
    assert client.change_message_visibility("q", id, 1) is False
    assert client.receive_message("q") is None
    assert set(db.hkeys("rsmq:q:Q")) == {
        *(b"vt", b"delay", b"maxsize", b"created", b"modified"),
        *(b"totalsent", b"totalrecv"),
    }


def test_visibility_can_be_changed_both_ways(client: Rsmq) -> None:
    client.create_queue("q")
    id = client.send_message("q", "x")
    assert client.change_message_visibility("q", id, 1000) is True
    assert client.receive_message("q") is None
    assert client.change_message_visibility("q", id, 0) is True
    received = client.receive_message("q")
    assert received is not None
    assert received.rc == 1


def test_a_peek_shows_all_in_order_and_changes_nothing(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    client.send_messages("q", ["a", "b", "c"])
    client.send_message("q", "late", delay=500)
    client.receive_message("q", vt=100)
    before = at_rest(db)
    seen = client.peek_messages("q")
    assert [(m.text, m.rc) for m in seen] == [("b", 0), ("c", 0), ("a", 1), ("late", 0)]
    assert [m.fr > 0 for m in seen] == [False, False, True, False]
    assert [m.text for m in client.peek_messages("q", 2, first=1)] == ["c", "a"]
    assert client.peek_messages("q", 5, first=4) == []
    assert at_rest(db) == before


# ── the clients themselves ───────────────────────────────────────────────────


def test_a_closed_client_reconnects(client: Rsmq) -> None:
    client.create_queue("q")
    client.close()
    assert client.list_queues() == ["q"]


def test_threads_share_a_client(rsmq: Rsmq) -> None:
    rsmq.create_queue("q")
    received: list[Message] = []

    def work(number: int) -> None:
        for n in range(25):
            rsmq.send_message("q", f"{number}.{n}")
        for _ in range(25):
            received.extend(rsmq.receive_messages("q", 1))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({m.id for m in received}) == len(received) == 200


async def test_tasks_share_one_connection(
    async_rsmq: AsyncRsmq, server: Server, db: redis.Redis
) -> None:
    await async_rsmq.create_queue("q")
    before = len(db.client_list())
    await asyncio.gather(*(async_rsmq.send_message("q", str(n)) for n in range(200)))
    received = await asyncio.gather(*(async_rsmq.receive_message("q") for _ in range(250)))
    assert len({m.id for m in received if m}) == 200
    assert len(db.client_list()) == before
