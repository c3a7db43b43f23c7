"""Batches of messages, and the number of round trips they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from tambomq.errors import BatchIncomplete, InvalidBody, MessageTooLong, StoreFull
from tambomq.rsmq import Message, Rsmq
from tests.rsmq.conftest import Connect
from tests.servers import Server

BATCHES = [0, 1, 500, 501, 1500]


@pytest.mark.parametrize("size", BATCHES)
def test_a_batch_is_received_in_the_order_it_was_sent(client: Rsmq, size: int) -> None:
    client.create_queue("q")
    bodies = [str(n) for n in range(size)]
    ids = client.send_messages("q", bodies)
    assert len(set(ids)) == size
    assert ids == sorted(ids)
    received = client.receive_messages("q", max(1, size))
    assert [m.text for m in received] == bodies
    assert [m.id for m in received] == ids
    assert client.delete_messages("q", received) == [True] * size
    found = client.get_queue_attributes("q")
    assert (found.msgs, found.totalsent, found.totalrecv) == (0, size, size)


def test_batches_follow_each_other_in_order(client: Rsmq) -> None:
    client.create_queue("q")
    ids = [id for _ in range(20) for id in client.send_messages("q", "abc")]
    ids.append(client.send_message("q", "last"))
    assert [m.id for m in client.receive_messages("q", 100)] == ids


def test_a_batch_may_come_from_a_generator_and_mix_kinds(client: Rsmq) -> None:
    client.create_queue("q")
    client.send_messages("q", (body for body in ("é", b"\xff", "")))
    received = client.receive_messages("q", 10)
    assert [m.body for m in received] == ["é".encode(), b"\xff", b""]
    deleted = client.delete_messages("q", (each for each in (received[0], received[1].id)))
    assert deleted == [True, True]


def test_a_delayed_batch_is_hidden_as_a_whole(client: Rsmq) -> None:
    client.create_queue("q")
    client.send_messages("q", ["a", "b"], delay=1000)
    assert client.receive_messages("q", 10) == []
    assert [m.text for m in client.peek_messages("q")] == ["a", "b"]


@pytest.mark.parametrize("place", [0, 499, 500, 1200])
def test_a_batch_with_one_too_long_stores_nothing(
    client: Rsmq, db: redis.Redis, place: int
) -> None:
    client.create_queue("q", maxsize=1024)
    before = db.dump("rsmq:q:Q")
    bodies = ["x"] * 1300
    bodies[place] = "x" * 1025
    with pytest.raises(MessageTooLong) as caught:
        client.send_messages("q", bodies)
    assert (caught.value.size, caught.value.maxsize) == (1025, 1024)
    assert db.dump("rsmq:q:Q") == before
    assert not db.exists("rsmq:q")


def test_a_batch_with_one_illegal_body_stores_nothing(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    bodies: list[Any] = [*["x"] * 600, None]
    with pytest.raises(InvalidBody):
        client.send_messages("q", bodies)
    assert not db.exists("rsmq:q")


def test_a_receive_may_ask_for_more_messages_than_there_are(client: Rsmq) -> None:
    client.create_queue("q")
    client.send_messages("q", ["x"] * 700)
    assert len(client.receive_messages("q", 10_000)) == 700
    assert client.receive_messages("q", 10_000) == []


@pytest.mark.parametrize("vt", [0, 0.001])
def test_a_large_batch_received_with_a_vt_of_zero_has_each_message_once(
    client: Rsmq, vt: float
) -> None:
    client.create_queue("q")
    ids = client.send_messages("q", ["x"] * 600)
    received = client.receive_messages("q", 5000, vt=vt)
    assert sorted(m.id for m in received) == ids
    # Each has its latest receipt, so it can be settled.
    assert client.delete_messages("q", received) == [True] * 600


def test_a_batch_delete_reports_each_message(client: Rsmq) -> None:
    client.create_queue("q")
    a, b = client.send_messages("q", "ab")
    assert client.delete_messages("q", [a, "x" * 32, a, b]) == [True, False, False, True]
    assert client.delete_messages("q", []) == []


def test_a_batch_that_fills_the_server_reports_which_messages_were_stored(
    connect_to: Connect, private_server: Server
) -> None:
    client = connect_to(private_server.url)
    client.create_queue("q", maxsize=-1)
    bodies = [f"{n:06}" + "x" * 10_000 for n in range(2000)]
    with redis.Redis.from_url(private_server.url) as db:
        used = db.info("memory")["used_memory"]
        # Enough memory for one chunk of 5 MB, not for four.
        db.config_set("maxmemory", used + 12_000_000)
        with pytest.raises(BatchIncomplete) as caught:
            client.send_messages("q", bodies)
        sent_ids = caught.value.ids
        done = [id for id in sent_ids if id is not None]
        assert isinstance(caught.value.__cause__, StoreFull)
        assert 0 < len(done) < 2000
        assert [id is None for id in sent_ids] == [n >= len(done) for n in range(2000)]
        assert db.zcard("rsmq:q") == db.hlen("rsmq:q:Q") - 6 == len(done)
        db.config_set("maxmemory", 0)
    # The rest can be sent again.
    rest = client.send_messages("q", bodies[len(done) :])
    received = client.receive_messages("q", 2000)
    assert [m.id for m in received] == done + rest
    assert [m.text for m in received] == bodies


# ── round trips ──────────────────────────────────────────────────────────────


def commands_of(action: Callable[[], object], db: redis.Redis) -> list[str]:
    """The names of the commands that *action* sends, without those that scripts run."""
    with db.monitor() as monitor:  # type: ignore[no-untyped-call]
        db.echo("begin")
        action()
        db.echo("end")
        names: list[str] = []
        while names.count("ECHO") < 2:
            seen = monitor.next_command()
            if seen["client_type"] != "lua":
                names.append(seen["command"].split()[0].upper())
    return names[names.index("ECHO") + 1 : -1]


def test_each_operation_is_one_round_trip(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    ids = client.send_messages("q", ["x"] * 500)
    # Load every script first: the first call of each sends its source.
    for action in (
        lambda: client.send_message("q", "x"),
        lambda: client.send_messages("q", ["x"] * 500),
        lambda: client.receive_message("q"),
        lambda: client.receive_messages("q", 500),
        lambda: client.pop_message("q"),
        lambda: client.peek_messages("q"),
        lambda: client.delete_message("q", ids[0]),
        lambda: client.delete_messages("q", ids),
        lambda: client.change_message_visibility("q", ids[0], 1),
        lambda: client.get_queue_attributes("q"),
        lambda: client.purge_queue("q"),
    ):
        action()
        assert commands_of(action, db) == ["EVALSHA"]
    assert commands_of(client.list_queues, db) == ["SMEMBERS"]


def test_a_batch_of_any_size_is_one_round_trip(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    received: list[Message] = []
    for action in (
        lambda: client.send_messages("q", ["x"] * 1500),
        lambda: received.extend(client.receive_messages("q", 1500)),
        lambda: client.delete_messages("q", received),
    ):
        # Three scripts, the first with its source, all sent before the first reply is read.
        assert commands_of(action, db) == ["EVAL", "EVALSHA", "EVALSHA"]
    assert client.get_queue_attributes("q").msgs == 0
