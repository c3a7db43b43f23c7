"""RSMQ's journals: entries are written in the same step as the operation, or not at all."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tambomq.errors import (
    InvalidFormat,
    JournalFull,
    MessageTooLong,
    QueueNotFound,
    ReplyLost,
    StoreError,
    StoreFull,
    StoreUnavailable,
    WrongType,
)
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import DEFAULT_BOUNDS, JournalBounds
from tambomq.rsmq import Reject, Rsmq, RsmqWorker
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops import messages as message_ops
from tambomq.rsmq.ops.journal import journal_policy
from tambomq.store.call import Script, load_script
from tests.journal.looking import bodies, commit_all, records, state
from tests.rsmq.conftest import Connect
from tests.rsmq.stored import at_rest
from tests.servers import Server, eventually, eventually_async
from tests.servers.cluster import Cluster
from tests.store.proxy import Proxy

JOURNAL = JournalKeys("rsmq", "orders")
ENTRY = 100


@pytest.fixture
def journalled(connect: Connect) -> Rsmq:
    """A client whose queue ``orders`` has a journal."""
    client = connect(journal=("orders", "audit-*"))
    client.create_queue("orders")
    return client


def test_a_message_is_journalled_from_its_send_to_its_end(journalled: Rsmq, server: Server) -> None:
    id = journalled.send_message("orders", b"one")
    for _ in range(2):
        assert journalled.receive_message("orders", vt=0) is not None
    (message,) = journalled.receive_messages("orders", 5)
    assert journalled.delete_message("orders", id, receipt=message.receipt)
    entries = records(server.url, "rsmq", "orders")
    assert [(each.event, each.id, each.attempt) for each in entries] == [
        ("sent", id, None),
        ("received", id, 1),
        ("received", id, 2),
        ("received", id, 3),
        ("deleted", id, None),
    ]
    assert entries[0].body == b"one"
    assert [each.at_ms for each in entries] == sorted(each.at_ms for each in entries)
    assert entries[0].at_ms > 0


def test_the_fields_are_as_they_are_described(journalled: Rsmq, db: redis.Redis) -> None:
    id = journalled.send_message("orders", "text", delay=2)
    found: Any = db.xrange(JOURNAL.journal)
    ((entry, fields),) = found
    assert list(fields.items()) == [
        (b"o", b"104"),
        (b"e", b"sent"),
        (b"id", id.encode()),
        (b"ts", fields[b"ts"]),
        (b"delay_ms", b"2000"),
        (b"d", b"text"),
    ]
    assert abs(int(fields[b"ts"]) - int(entry.split(b"-")[0])) < 1000


def test_a_batch_is_recorded_in_its_order(journalled: Rsmq, server: Server) -> None:
    sent = [b"%d" % n for n in range(1200)]
    ids = journalled.send_messages("orders", sent)
    entries = records(server.url, "rsmq", "orders")
    assert [each.body for each in entries] == sent
    assert [each.id for each in entries] == ids


def test_the_delay_of_a_queue_is_journalled(connect: Connect, server: Server) -> None:
    client = connect(journal=("audit-*",))
    client.create_queue("audit-1", delay=7)
    client.send_message("audit-1", "x")
    client.send_message("audit-1", "x", delay=0)
    entries = records(server.url, "rsmq", "audit-1")
    assert [each.delay_ms for each in entries] == [7000, None]


def test_deletions_without_effect_are_not_journalled(journalled: Rsmq, server: Server) -> None:
    ids = journalled.send_messages("orders", ["a", "b"])
    assert journalled.delete_messages("orders", [*ids, "x" * 32]) == [True, True, False]
    assert not journalled.delete_message("orders", ids[0])
    entries = [each.id for each in records(server.url, "rsmq", "orders") if each.event == "deleted"]
    assert entries == ids


def test_a_pop_is_a_receive_and_a_deletion(journalled: Rsmq, server: Server) -> None:
    journalled.send_message("orders", "x")
    assert journalled.pop_message("orders") is not None
    assert journalled.pop_message("orders") is None
    assert journalled.receive_message("orders") is None
    entries = records(server.url, "rsmq", "orders")
    assert [(each.event, each.attempt) for each in entries[1:]] == [
        ("received", 1),
        ("deleted", None),
    ]


async def test_a_worker_journals_why_a_message_is_dead(rsmq: Rsmq, server: Server) -> None:
    rsmq.create_queue("orders")
    id = rsmq.send_message("orders", "x")

    def refuse(_: object) -> None:
        raise Reject("no such customer")

    worker = RsmqWorker("orders", refuse, url=server.url, journal=True)

    def is_journalled() -> bool:
        return len(records(server.url, "rsmq", "orders")) == 2

    task = asyncio.ensure_future(worker.run())
    await eventually_async(is_journalled)
    worker.stop()
    await task
    received, dead = records(server.url, "rsmq", "orders")
    assert (received.event, received.id, received.attempt) == ("received", id, 1)
    assert (dead.event, dead.id) == ("dead", id)
    assert "no such customer" in dead.reason


def test_other_queues_leave_no_trace(journalled: Rsmq, db: redis.Redis) -> None:
    journalled.create_queue("plain")
    journalled.send_message("plain", "x")
    journalled.receive_message("plain")
    assert not db.exists(JOURNAL.journal, JOURNAL.state, JournalKeys("rsmq", "plain").journal)


def test_a_queue_without_a_journal_uses_the_plain_scripts() -> None:
    keys, chosen = Keys(), journal_policy("rsmq", ("orders",), DEFAULT_BOUNDS)
    for journal in (None, journal_policy("rsmq", (), DEFAULT_BOUNDS), chosen):
        plain = message_ops.send(keys, "plain", b"x", journal=journal)
        assert isinstance(plain.verb, Script)
        assert plain.verb.source == load_script("tambomq.rsmq.ops", "send").source
        assert plain.keys == keys.to_send("plain")
    assert len(message_ops.send(keys, "orders", b"x", journal=chosen).keys) == 5


def test_another_namespace_has_a_journal_of_its_own(connect: Connect, server: Server) -> None:
    client = connect(ns="mine", journal=("orders",))
    client.create_queue("orders")
    client.send_message("orders", "x")
    assert bodies(server.url, "rsmq", "mine:orders") == [b"x"]
    assert bodies(server.url, "rsmq", "orders") == []


def test_the_stored_queue_is_the_same_with_a_journal(
    connect: Connect, rsmq: Rsmq, db: redis.Redis
) -> None:
    rsmq.create_queue("orders")
    rsmq.send_message("orders", "x", delay=0)
    plain = {key: db.type(key) for key in db.scan_iter()}
    db.flushall()
    client = connect(journal=("orders",))
    client.create_queue("orders")
    id = client.send_message("orders", "x", delay=0)
    db.delete(JOURNAL.journal, JOURNAL.state)
    assert {key: db.type(key) for key in db.scan_iter()} == plain
    received = rsmq.receive_message("orders")
    assert received is not None
    assert (received.id, received.body, received.rc) == (id, b"x", 1)


# ── full ─────────────────────────────────────────────────────────────────────


def test_a_full_journal_refuses_and_nothing_is_stored(connect: Connect, server: Server) -> None:
    client = connect(journal=("orders",), journal_bounds=JournalBounds(max_entries=3))
    client.create_queue("orders")
    client.send_messages("orders", "ab")
    with redis.Redis.from_url(server.url) as db:
        before = at_rest(db)
        with pytest.raises(JournalFull, match="raise its bounds"):
            client.send_messages("orders", "cd")
        found = state(server.url, "rsmq", "orders")
        assert found is not None
        assert (found.entries, found.refused) == (2, 2)
        db.hdel(JOURNAL.state, "refused")
        assert at_rest(db) == before
    client.send_message("orders", "c")
    with pytest.raises(JournalFull):
        client.send_message("orders", "d")
    assert bodies(server.url, "rsmq", "orders") == [b"a", b"b", b"c"]
    assert client.get_queue_attributes("orders").msgs == 3
    commit_all(server.url, "rsmq", "orders")
    client.send_message("orders", "d")


def test_bytes_fill_a_journal_too(connect: Connect) -> None:
    bounds = JournalBounds(max_bytes=2 * (ENTRY + 500))
    client = connect(journal=("orders",), journal_bounds=bounds)
    client.create_queue("orders")
    client.send_message("orders", b"x" * 1000)
    with pytest.raises(JournalFull):
        client.send_message("orders", b"x")
    assert client.get_queue_attributes("orders").msgs == 1


def test_consumers_go_on_when_the_journal_is_full(connect: Connect, server: Server) -> None:
    client = connect(journal=("orders",), journal_bounds=JournalBounds(max_entries=2))
    client.create_queue("orders")
    client.send_messages("orders", "ab")
    taken = client.receive_messages("orders", 10)
    assert client.delete_messages("orders", taken) == [True, True]
    found = state(server.url, "rsmq", "orders")
    assert found is not None
    assert (found.entries, found.dropped) == (2, 4)


def test_a_wrong_send_says_what_is_wrong_even_when_the_journal_is_full(connect: Connect) -> None:
    client = connect(journal=("*",), journal_bounds=JournalBounds(max_entries=2))
    client.create_queue("orders", maxsize=1024)
    client.send_messages("orders", "ab")
    with pytest.raises(MessageTooLong):
        client.send_message("orders", "x" * 2000)
    with pytest.raises(QueueNotFound):
        client.send_message("nowhere", "x")
    with pytest.raises(JournalFull):
        client.send_message("orders", "x")


# ── neither or both ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("key", [JOURNAL.journal, JOURNAL.state])
def test_a_journal_key_of_another_type_stops_a_send(
    journalled: Rsmq, db: redis.Redis, key: str
) -> None:
    db.set(key, "x")
    before = at_rest(db)
    with pytest.raises(WrongType, match="journal"):
        journalled.send_message("orders", "x")
    assert at_rest(db) == before


def test_a_send_to_a_key_of_another_type_records_nothing(journalled: Rsmq, db: redis.Redis) -> None:
    db.set("rsmq:orders", "x")
    with pytest.raises(WrongType):
        journalled.send_message("orders", "x")
    assert not db.exists(JOURNAL.journal, JOURNAL.state)


def test_a_server_without_memory_stores_neither(
    connect_to: Connect, private_server: Server
) -> None:
    client = connect_to(private_server.url, journal=("orders",))
    client.create_queue("orders")
    client.send_message("orders", "a")
    with redis.Redis.from_url(private_server.url) as db:
        db.config_set("maxmemory", 1)
        with pytest.raises(StoreFull):
            client.send_message("orders", "b")
        db.config_set("maxmemory", 0)
    assert bodies(private_server.url, "rsmq", "orders") == [b"a"]
    assert client.get_queue_attributes("orders").msgs == 1


def test_a_lost_reply_leaves_both_or_neither(connect_to: Connect, server: Server) -> None:
    with Proxy(server.port) as proxy:
        client = connect_to(proxy.url, journal=("orders",))
        client.create_queue("orders")
        client.send_message("orders", b"first")
        for after in (1, 20):
            proxy.cut("reply", after)
            with pytest.raises(ReplyLost):
                client.send_message("orders", b"%d" % after)
        stored = [each.body for each in client.peek_messages("orders")]
        assert bodies(server.url, "rsmq", "orders") == stored


def test_a_cluster_is_refused_in_one_line(cluster: Cluster) -> None:
    url = cluster.nodes[0].url
    with Rsmq(url, ns="{mine}", journal=("orders",)) as client:
        client.create_queue("orders")
        with pytest.raises(StoreError, match="a journal cannot be kept on a cluster") as caught:
            client.send_message("orders", "x")
        assert "\n" not in str(caught.value)
        assert client.get_queue_attributes("orders").msgs == 0


def test_one_name_alone_is_refused() -> None:
    with pytest.raises(InvalidFormat, match="put it in a tuple"):
        Rsmq(journal="orders")


batches = st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=4), max_size=12)


@given(batches, st.integers(2, 20), st.integers(1024, 3000))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_journal_holds_what_was_confirmed_and_never_more_than_its_bounds(
    server: Server, db: redis.Redis, sent: list[list[bytes]], entries: int, size: int
) -> None:
    db.flushall()
    confirmed: list[bytes] = []
    with Rsmq(server.url, journal=("q",), journal_bounds=JournalBounds(entries, size)) as client:
        client.create_queue("q")
        for batch in sent:
            try:
                client.send_messages("q", batch)
                confirmed += batch
            except JournalFull:
                pass
        assert bodies(server.url, "rsmq", "q") == confirmed
        assert client.get_queue_attributes("q").msgs == len(confirmed)
    assert len(confirmed) <= entries
    assert sum(ENTRY + len(each) for each in confirmed) <= size


def test_a_redis_that_is_killed_has_both_or_neither(private_server: Server) -> None:
    confirmed: list[bytes] = []
    with (
        Rsmq(private_server.url, journal=("q",), patience_s=0) as client,
        ThreadPoolExecutor() as pool,
    ):
        client.create_queue("q")

        def send(batch: int) -> None:
            for n in range(10_000):
                sent = [b"%d.%d.%d" % (batch, n, m) for m in range(3)]
                client.send_messages("q", sent)
                confirmed.extend(sent)

        sending = [pool.submit(send, batch) for batch in range(3)]
        eventually(lambda: len(confirmed) > 300, within_s=20)
        private_server.kill()
        assert all(isinstance(each.exception(), StoreUnavailable) for each in sending)
        private_server.restart()
        stored = [each.body for each in client.peek_messages("q", 100_000)]
    entries = bodies(private_server.url, "rsmq", "q")
    assert Counter(entries) == Counter(stored)
    assert set(confirmed) <= set(stored)
    assert len(set(entries)) == len(entries)
