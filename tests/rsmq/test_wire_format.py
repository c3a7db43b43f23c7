"""Stored data after given operations, byte for byte as in the specification."""

from __future__ import annotations

import re
import string
from typing import cast

import redis

from tambomq.rsmq import Message, Rsmq
from tests.rsmq.conftest import Connect
from tests.servers import Server, eventually

ID = re.compile(rb"[0-9a-z]{10}[A-Za-z0-9]{22}")
INTEGER = re.compile(rb"0|[1-9][0-9]*")


def fields(db: redis.Redis, queue: str = "test-queue") -> list[tuple[bytes, bytes]]:
    """The hash, in the order the server keeps it."""
    stored = cast("dict[bytes, bytes]", db.hgetall(f"rsmq:{queue}:Q"))
    return list(stored.items())


def score(db: redis.Redis, id: str, queue: str = "test-queue") -> bytes:
    """The score as the server prints it, which redis-py would turn into a float."""
    asked = "return redis.call('ZSCORE', KEYS[1], ARGV[1])"
    return cast("bytes", db.eval(asked, 1, f"rsmq:{queue}", id))


def seconds(db: redis.Redis) -> int:
    return db.time()[0]


def received(client: Rsmq, vt: float | None = None) -> Message:
    message = client.receive_message("test-queue", vt=vt)
    assert message is not None
    return message


def test_without_queues_no_key_is_stored(client: Rsmq, db: redis.Redis) -> None:
    assert client.list_queues() == []
    assert db.dbsize() == 0


def test_a_new_queue_is_a_member_of_the_set_and_a_hash_of_five_fields(
    client: Rsmq, db: redis.Redis
) -> None:
    before = seconds(db)
    client.create_queue("test-queue", maxsize=65535)
    assert sorted(db.keys()) == [b"rsmq:QUEUES", b"rsmq:test-queue:Q"]
    assert db.smembers("rsmq:QUEUES") == {b"test-queue"}
    created = dict(fields(db))[b"created"]
    assert before <= int(created) <= seconds(db)
    assert fields(db) == [
        (b"vt", b"30"),
        (b"delay", b"0"),
        (b"maxsize", b"65535"),
        (b"created", created),
        (b"modified", created),
    ]


def test_a_sent_message_is_a_member_of_the_zset_and_a_field(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("test-queue", maxsize=65535)
    new = fields(db)
    id = client.send_message("test-queue", "Hello, World")
    assert db.zrange("rsmq:test-queue", 0, -1) == [id.encode()]
    assert db.type("rsmq:test-queue") == b"zset"
    assert fields(db) == [*new, (id.encode(), b"Hello, World"), (b"totalsent", b"1")]
    # The id begins with the microsecond; the score is the millisecond of the same moment.
    assert score(db, id) == b"%d" % (int(id[:10], 36) // 1000)


def test_a_received_message_has_counters_behind_it(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("test-queue")
    id = client.send_message("test-queue", "Hello, World")
    sent = fields(db)
    message = received(client)
    first = b"%d" % message.fr
    assert fields(db) == [
        *sent,
        (b"totalrecv", b"1"),
        (f"{id}:rc".encode(), b"1"),
        (f"{id}:fr".encode(), first),
    ]
    assert score(db, id) == b"%d" % (message.fr + 30_000)
    client.change_message_visibility("test-queue", id, 0)
    again = received(client, vt=600)
    assert fields(db) == [
        *sent,
        (b"totalrecv", b"2"),
        (f"{id}:rc".encode(), b"2"),
        (f"{id}:fr".encode(), first),
    ]
    assert score(db, id) == b"%d" % again.visible_at


def test_a_change_of_visibility_writes_the_score_alone(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("test-queue")
    id = client.send_message("test-queue", "Hello, World")
    received(client)
    before, hash_before = int(score(db, id)), fields(db)
    client.change_message_visibility("test-queue", id, 600)
    assert before + 500_000 < int(score(db, id)) < before + 700_000
    assert fields(db) == hash_before


def test_a_deletion_removes_the_member_and_three_fields(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("test-queue")
    kept = client.send_message("test-queue", "kept", delay=100)
    id = client.send_message("test-queue", "Hello, World")
    received(client)
    left = [pair for pair in fields(db) if id.encode() not in pair[0]]
    assert len(fields(db)) == len(left) + 3
    client.delete_message("test-queue", id)
    assert fields(db) == left
    assert db.zrange("rsmq:test-queue", 0, -1) == [kept.encode()]


def test_a_pop_leaves_what_a_receive_and_a_deletion_leave(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("test-queue")
    new = fields(db)
    client.send_message("test-queue", "Hello, World")
    client.pop_message("test-queue")
    assert fields(db) == [*new, (b"totalsent", b"1"), (b"totalrecv", b"1")]
    assert not db.exists("rsmq:test-queue")


def test_a_purge_leaves_the_fields_in_their_order(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("test-queue")
    new = fields(db)
    client.send_messages("test-queue", "ab")
    received(client)
    client.purge_queue("test-queue")
    assert fields(db) == [*new, (b"totalsent", b"2"), (b"totalrecv", b"1")]
    assert sorted(db.keys()) == [b"rsmq:QUEUES", b"rsmq:test-queue:Q"]


def test_changed_settings_are_integers_at_their_place(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("test-queue")
    client.set_queue_attributes("test-queue", vt=0, delay=9_999_999, maxsize=-1)
    assert [name for name, _ in fields(db)] == [
        *(b"vt", b"delay", b"maxsize", b"created", b"modified"),
    ]
    assert [value for _, value in fields(db)][:3] == [b"0", b"9999999", b"-1"]


def test_every_number_at_rest_is_a_plain_integer(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("test-queue", vt=9_999_999, delay=9_999_999)
    client.send_message("test-queue", "a")
    client.send_message("test-queue", "a", delay=0.0004)
    client.send_messages("test-queue", "aa", delay=0.0005)
    eventually(lambda: client.receive_messages("test-queue", 1, vt=0.1234))
    client.receive_messages("test-queue", 1, vt=1e-7)
    client.receive_messages("test-queue", 1)
    assert all(INTEGER.fullmatch(value) for _, value in fields(db) if value != b"a")
    for message in client.peek_messages("test-queue"):
        assert INTEGER.fullmatch(score(db, message.id))


def test_an_id_is_the_microsecond_in_base_36_and_22_letters(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("test-queue")
    before = seconds(db)
    ids = client.send_messages("test-queue", ["x"] * 300)
    assert all(ID.fullmatch(id.encode()) for id in ids)
    assert all(before <= int(id[:10], 36) // 1_000_000 <= seconds(db) + 1 for id in ids)
    # 6,600 letters: each of the 62 is bound to be among them.
    assert {letter for id in ids for letter in id[10:]} == {*string.ascii_letters, *string.digits}


def test_a_realtime_send_publishes_how_many_messages_there_are(
    connect: Connect, db: redis.Redis
) -> None:
    client = connect(realtime=True)
    client.create_queue("test-queue")
    with db.pubsub() as heard:  # type: ignore[no-untyped-call]
        heard.subscribe("rsmq:rt:test-queue")
        heard.get_message(timeout=30)
        client.send_message("test-queue", "a")
        client.send_message("test-queue", "b", delay=100)
        client.send_messages("test-queue", "cd")
        connect(realtime=False).send_message("test-queue", "unheard")
        client.receive_message("test-queue")
        client.send_message("test-queue", "e")
        payloads = [heard.get_message(timeout=30) for _ in range(5)]
        assert [each and each["data"] for each in payloads] == [b"1", b"2", b"3", b"4", b"6"]
        assert {each and each["channel"] for each in payloads} == {b"rsmq:rt:test-queue"}
        assert heard.get_message(timeout=0) is None


def test_a_namespace_changes_every_name(connect: Connect, db: redis.Redis) -> None:
    client = connect(ns="{app}", realtime=True)
    client.create_queue("test-queue")
    with db.pubsub() as heard:  # type: ignore[no-untyped-call]
        heard.subscribe("{app}:rt:test-queue")
        heard.get_message(timeout=30)
        client.send_message("test-queue", "a")
        assert heard.get_message(timeout=30) is not None
    assert sorted(db.keys()) == [b"{app}:QUEUES", b"{app}:test-queue", b"{app}:test-queue:Q"]


def test_all_servers_keep_the_same(connect_to: Connect, each_server: Server) -> None:
    client = connect_to(each_server.url)
    client.create_queue("test-queue", vt=7)
    id = client.send_message("test-queue", "Hello, World")
    message = received(client)
    with redis.Redis.from_url(each_server.url) as db:
        assert [name for name, _ in fields(db)] == [
            *(b"vt", b"delay", b"maxsize", b"created", b"modified"),
            *(id.encode(), b"totalsent", b"totalrecv"),
            *(f"{id}:rc".encode(), f"{id}:fr".encode()),
        ]
        assert score(db, id) == b"%d" % (message.fr + 7000)
    assert client.delete_messages("test-queue", [message]) == [True]
    assert client.pop_message("test-queue") is None
    assert client.get_queue_stats("test-queue").visible == 0
