"""A redrive journals the messages it moves, and an undo those it moves back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import redis

from tambomq.bulk.redrives import Redrive
from tambomq.chasqui.wire.msgpack import encode_payload
from tambomq.cli.main import tambo
from tambomq.errors import QueueError, StoreError
from tambomq.journal.policy import JournalBounds
from tambomq.pipeline.address import address
from tambomq.pipeline.dlq import redrive
from tambomq.pipeline.dlq.queues import DeadLetterQueue, DeadLetterQueues
from tambomq.pipeline.dlq.redrive import RedriveOptions, RedrivePlan
from tambomq.pipeline.dlq.selection import Selection
from tambomq.rsmq import Rsmq
from tambomq.store.sync import Store
from tests.cli.transcript import call
from tests.journal.looking import bodies, commit_all, records, state
from tests.pipeline.dying import dies_after
from tests.pipeline.dying_letters import JOBS, add_dead_letters, dead, waiting
from tests.servers import Server
from tests.servers.cluster import Cluster

COUNT = 600
"""Three scripts' worth."""
TIGHT = JournalBounds(max_entries=300)
"""Room for one."""


@pytest.fixture
def store(server: Server) -> Iterator[Store]:
    opened = Store(server.url)
    yield opened
    opened.close()


def dlq(
    store: Store, url: str, queue: str, journal: bool | JournalBounds = True
) -> DeadLetterQueue:
    return DeadLetterQueues(store, url, journal=journal).of(address(queue))


def plan(of: DeadLetterQueue, body: bytes | None = None) -> RedrivePlan:
    """What an order for all letters comes to, asked again under the same id."""
    selections = [Selection(letter.id, body) for letter in of.letters()]
    started = Redrive("r", until=of.until(), selected=COUNT, dead=getattr(of, "dead", ""))
    return RedrivePlan(started, selections, is_known=False)


def add_dead_messages(rsmq: Rsmq, db: redis.Redis, count: int = COUNT) -> list[str]:
    """Make ``orders`` and its dead letters; return their ids."""
    rsmq.create_queue("orders")
    rsmq.create_queue("orders-dead", maxsize=-1)
    ids = rsmq.send_messages("orders-dead", [b"m%d" % n for n in range(count)])
    db.hset("rsmq:orders-dead:Q", mapping={f"{id}:why": f"gave up on {id[-4:]}" for id in ids})
    return ids


def held(rsmq: Rsmq, queue: str) -> list[str]:
    return [each.id for each in rsmq.peek_messages(queue, COUNT + 1)]


def journalled(url: str, protocol: str) -> list[tuple[str, str]]:
    return [(each.event, each.id) for each in records(url, protocol, "orders")]


# ── ChasquiMQ ────────────────────────────────────────────────────────────────


def test_jobs_that_wait_again_are_recorded_with_their_data(
    store: Store, server: Server, db: redis.Redis
) -> None:
    add_dead_letters(db, COUNT)
    orders = dlq(store, server.url, "chasqui:orders")
    redrive.run(orders, plan(orders), RedriveOptions())
    found = records(server.url, "chasqui", "orders")
    assert {(each.event, each.name) for each in found} == {("sent", "email")}
    payloads = [(f"job-{n}", encode_payload({"n": n})) for n in range(COUNT)]
    assert [(each.id, each.body) for each in found] == payloads


def test_a_new_payload_is_what_is_recorded(store: Store, server: Server, db: redis.Redis) -> None:
    add_dead_letters(db, 2, name="")
    orders = dlq(store, server.url, "chasqui:orders")
    redrive.run(orders, plan(orders, encode_payload({"m": 1})), RedriveOptions())
    assert bodies(server.url, "chasqui", "orders") == [encode_payload({"m": 1})] * 2


def test_events_report_redriven_jobs_and_those_that_died_again(
    store: Store, server: Server, db: redis.Redis
) -> None:
    add_dead_letters(db, 2)
    orders = dlq(store, server.url, "chasqui:orders")
    redrive.run(orders, plan(orders), RedriveOptions())
    orders.undo(plan(orders).redrive)
    events: Any = db.xrange(JOBS.events)
    seen = [(fields[b"e"], fields[b"id"], fields.get(b"reason")) for _, fields in events]
    assert seen == [
        (b"waiting", b"job-0", None),
        (b"waiting", b"job-1", None),
        (b"dlq", b"job-0", b"retries_exhausted"),
        (b"dlq", b"job-1", b"retries_exhausted"),
    ]
    assert len(dead(db)) == 2
    assert journalled(server.url, "chasqui") == [("sent", "job-0"), ("sent", "job-1")]


def test_a_full_journal_stops_a_redrive_of_jobs_that_goes_on_later(
    store: Store, server: Server, db: redis.Redis
) -> None:
    add_dead_letters(db, COUNT)
    orders = dlq(store, server.url, "chasqui:orders", TIGHT)
    first = plan(orders)
    with pytest.raises(QueueError, match=r"is full.*250 letters were moved, resume with --id r"):
        redrive.run(orders, first, RedriveOptions())
    assert (len(waiting(db)), len(dead(db))) == (250, COUNT - 250)
    assert journalled(server.url, "chasqui") == [("sent", f"job-{n}") for n in range(250)]
    wide = dlq(store, server.url, "chasqui:orders")
    assert redrive.run(wide, first, RedriveOptions()).moved == COUNT
    assert [id for _, id in journalled(server.url, "chasqui")] == [id for id, _, _ in waiting(db)]


def test_a_redrive_of_jobs_that_is_killed_anywhere_is_recorded_once(
    store: Store, server: Server, db: redis.Redis
) -> None:
    for round_trips in range(40):
        db.flushall()
        add_dead_letters(db, COUNT)
        orders = dlq(store, server.url, "chasqui:orders")
        killed = dies_after(
            round_trips, partial(redrive.run, orders, plan(orders), RedriveOptions())
        )
        assert [id for _, id in journalled(server.url, "chasqui")] == [
            id for id, _, _ in waiting(db)
        ]
        redrive.run(orders, plan(orders), RedriveOptions())
        assert journalled(server.url, "chasqui") == [("sent", f"job-{n}") for n in range(COUNT)], (
            round_trips
        )
        if not killed:
            assert round_trips > 5
            return
    pytest.fail("it took more round trips than were tried")


def test_all_servers_record_alike(each: Store, each_db: redis.Redis, each_server: Server) -> None:
    url = each_server.url
    add_dead_letters(each_db, 3)
    with Rsmq(url) as client:
        ids = add_dead_messages(client, each_db, 3)
    for queue in ("chasqui:orders", "rsmq:orders"):
        orders = dlq(each, url, queue)
        planned = plan(orders)
        redrive.run(orders, planned, RedriveOptions())
        assert orders.undo(planned.redrive).back == 3
    assert journalled(url, "chasqui") == [("sent", f"job-{n}") for n in range(3)]
    assert journalled(url, "rsmq") == [(event, id) for event in ("sent", "dead") for id in ids]


# ── RSMQ ─────────────────────────────────────────────────────────────────────


def test_messages_that_are_received_again_are_recorded_under_their_ids(
    store: Store, server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    ids = add_dead_messages(rsmq, db)
    orders = dlq(store, server.url, "rsmq:orders")
    redrive.run(orders, plan(orders), RedriveOptions())
    assert journalled(server.url, "rsmq") == [("sent", id) for id in ids]
    assert bodies(server.url, "rsmq", "orders") == [b"m%d" % n for n in range(COUNT)]
    assert [each.body for each in rsmq.receive_messages("orders", 2)] == [b"m0", b"m1"]
    assert state(server.url, "rsmq", "orders-dead") is None


def test_messages_that_stay_are_not_recorded(
    store: Store, server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    ids = add_dead_messages(rsmq, db, 4)
    rsmq.set_queue_attributes("orders", maxsize=1024)
    assert rsmq.receive_message("orders-dead") is not None
    orders = dlq(store, server.url, "rsmq:orders")
    planned = plan(orders, b"new")
    planned.selections[1] = Selection(ids[2], b"x" * 1025)
    done = redrive.run(orders, planned, RedriveOptions())
    assert (done.moved, done.refused) == (2, 1)
    assert sorted(id for _, id in journalled(server.url, "rsmq")) == sorted(held(rsmq, "orders"))
    assert bodies(server.url, "rsmq", "orders") == [b"new"] * 2


def test_a_message_that_died_again_is_journalled_with_the_reason(
    store: Store, server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    ids = add_dead_messages(rsmq, db, 3)
    orders = dlq(store, server.url, "rsmq:orders")
    planned = plan(orders)
    redrive.run(orders, planned, RedriveOptions())
    taken = rsmq.receive_message("orders")
    assert taken is not None
    for _ in range(2):
        orders.undo(planned.redrive)
    found = records(server.url, "rsmq", "orders")[3:]
    assert [(each.event, each.id, each.reason) for each in found] == [
        ("dead", id, f"gave up on {id[-4:]}") for id in ids[1:]
    ]


@pytest.mark.parametrize("bounds", [TIGHT, JournalBounds(max_bytes=260 * 104)])
def test_a_full_journal_stops_a_redrive_of_messages_that_goes_on_later(
    store: Store, server: Server, rsmq: Rsmq, db: redis.Redis, bounds: JournalBounds
) -> None:
    ids = add_dead_messages(rsmq, db)
    orders = dlq(store, server.url, "rsmq:orders", bounds)
    with pytest.raises(QueueError, match=r"is full.*250 letters were moved, resume with --id r"):
        redrive.run(orders, plan(orders), RedriveOptions())
    assert (held(rsmq, "orders"), held(rsmq, "orders-dead")) == (ids[:250], ids[250:])
    assert journalled(server.url, "rsmq") == [("sent", id) for id in ids[:250]]
    found = state(server.url, "rsmq", "orders")
    assert found is not None
    assert found.refused == 250
    commit_all(server.url, "rsmq", "orders")
    with pytest.raises(QueueError, match="500 letters were moved"):
        redrive.run(orders, plan(orders), RedriveOptions())
    commit_all(server.url, "rsmq", "orders")
    assert redrive.run(orders, plan(orders), RedriveOptions()).moved == COUNT
    assert held(rsmq, "orders") == ids


def test_undo_is_done_although_the_journal_is_full(
    store: Store, server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    ids = add_dead_messages(rsmq, db, 250)
    orders = dlq(store, server.url, "rsmq:orders", JournalBounds(max_entries=252))
    planned = plan(orders)
    redrive.run(orders, planned, RedriveOptions())
    assert orders.undo(planned.redrive).back == 250
    assert held(rsmq, "orders-dead") == ids
    found = state(server.url, "rsmq", "orders")
    assert found is not None
    assert (found.entries, found.dropped, found.refused) == (252, 248, 0)


def test_redrives_and_undoings_that_are_killed_anywhere_are_recorded_once(
    store: Store, server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    for round_trips in range(40):
        db.flushall()
        ids = add_dead_messages(rsmq, db)
        orders = dlq(store, server.url, "rsmq:orders")
        first = plan(orders)
        killed = dies_after(round_trips, partial(redrive.run, orders, first, RedriveOptions()))
        assert [id for _, id in journalled(server.url, "rsmq")] == held(rsmq, "orders"), round_trips
        redrive.run(orders, plan(orders), RedriveOptions())
        dies_after(round_trips, partial(orders.undo, first.redrive))
        orders.undo(first.redrive)
        expected = Counter(("sent", id) for id in ids) + Counter(("dead", id) for id in ids)
        assert Counter(journalled(server.url, "rsmq")) == expected, round_trips
        if not killed:
            assert round_trips > 5
            return
    pytest.fail("it took more round trips than were tried")


def test_the_undo_command_writes_to_the_journal(
    store: Store, server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    add_dead_messages(rsmq, db, 2)
    orders = dlq(store, server.url, "rsmq:orders", journal=False)
    redrive.run(orders, plan(orders), RedriveOptions())
    assert state(server.url, "rsmq", "orders") is None
    words = ("pipeline", "dlq", "undo", "rsmq:orders/r", "--journal")
    assert call(tambo, "tambo", *words, url=server.url).code == 0
    assert [event for event, _ in journalled(server.url, "rsmq")] == ["dead", "dead"]


def test_a_cluster_is_refused_in_one_line() -> None:
    with Cluster() as cluster:
        url = cluster.nodes[0].url
        store = Store(url)
        bury_one = {"d": b"\x94\xa1i\xc4\x01\x01\x00\x00", "reason": "x", "n": "mail"}
        node = redis.RedisCluster.from_url(url)
        node.xadd(JOBS.dlq, bury_one)  # type: ignore[arg-type]
        orders = dlq(store, url, "chasqui:orders")
        with pytest.raises(StoreError, match="a journal cannot be kept on a cluster"):
            redrive.run(orders, plan(orders), RedriveOptions())
        assert len(list(orders.letters())) == 1
        node.close()
        store.close()
