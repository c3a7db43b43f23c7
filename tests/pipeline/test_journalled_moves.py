"""Migrations and replays journal each message that they store exactly once, or refuse."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import redis

from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.chasqui.wire.envelope import decode_envelope
from tambomq.cli.main import tambo
from tambomq.errors import QueueError, StoreError
from tambomq.gomq import keys as gomq_keys
from tambomq.gomq import wire as gomq_wire
from tambomq.journal.policy import JournalBounds
from tambomq.pipeline.address import address
from tambomq.pipeline.transfer.bodies import to_payload
from tambomq.pipeline.transfer.migrate import (
    MigrationReport,
    QueueLocation,
    endpoint_of,
    migrate,
    move_name,
)
from tambomq.pipeline.transfer.replay import RecordedMessage, ReplayResult, replay
from tambomq.rsmq import Rsmq
from tambomq.store.sync import Store
from tests.cli.transcript import call
from tests.journal.looking import bodies, commit_all, records, state
from tests.pipeline.dying import dies_after
from tests.servers import Server
from tests.servers.cluster import Cluster

TARGETS = ("rsmq:b", "chasqui:b", "gomq:b")
BODIES = [b"body %d" % n for n in range(1100)]
"""Two batches."""
TIGHT = JournalBounds(max_entries=1050)
"""Room for one of them."""


@pytest.fixture
def orders(rsmq: Rsmq) -> Rsmq:
    """A queue with all bodies."""
    rsmq.create_queue("a")
    rsmq.send_messages("a", BODIES)
    return rsmq


def move(store: Store, url: str, source: str, target: str, **options: Any) -> MigrationReport:
    """Migrate from *source* to *target*, which has a journal."""
    ends = QueueLocation(address(source), url), QueueLocation(address(target), url)
    moved_to = endpoint_of(store, ends[1], **{"journal": True, **options})
    return migrate(endpoint_of(store, ends[0]), moved_to, move_name(*ends), wait_s=0.0)


def again(
    store: Store, url: str, target: str, journal: bool | JournalBounds = True
) -> ReplayResult:
    """Replay all bodies to *target*, which has a journal."""
    rows = [
        RecordedMessage("rsmq", "a", "journal", f"{n + 1}-0", f"old-{n}", "", 1000 + n, 0, body)
        for n, body in enumerate(BODIES)
    ]
    return replay(
        rows, endpoint_of(store, QueueLocation(address(target), url), journal=journal), "r"
    )


def stored(db: redis.Redis, target: str) -> list[tuple[str, bytes]]:
    """Return ids and bodies of what waits in ``b``, in order."""
    if target == "rsmq:b":
        ids: Any = db.zrange("rsmq:b", 0, -1)
        found: Any = db.hmget("rsmq:b:Q", ids) if ids else []
        return [(id.decode(), body) for id, body in zip(ids, found, strict=True)]
    if target == "chasqui:b":
        rows: Any = db.xrange(ChasquiKeys("b").stream)
        jobs = [decode_envelope(fields[b"d"]) for _, fields in rows]
        return [(job.id, job.payload) for job in jobs]
    elements: Any = db.lrange(gomq_keys.queue("b"), 0, -1)
    return [(each.id, each.payload) for each in map(gomq_wire.decode, elements)]


def journalled(url: str, target: str) -> list[tuple[str, bytes | None]]:
    """Return ids and bodies that the journal of ``b`` says were sent, in order."""
    found = records(url, target.partition(":")[0], "b")
    assert {each.event for each in found} <= {"sent"}
    return [(each.id, each.body) for each in found]


# ── migrations ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("target", TARGETS)
def test_the_journal_of_the_target_has_all_messages_that_arrived(
    store: Store, server: Server, orders: Rsmq, db: redis.Redis, target: str
) -> None:
    assert move(store, server.url, "rsmq:a", target).moved == len(BODIES)
    assert journalled(server.url, target) == stored(db, target)
    expected = [to_payload(body) if target == "chasqui:b" else body for body in BODIES]
    assert [body for _, body in journalled(server.url, target)] == expected
    assert state(server.url, "rsmq", "a") is None


def test_all_servers_record_alike(each: Store, each_db: redis.Redis, each_server: Server) -> None:
    url = each_server.url
    with Rsmq(url) as client:
        client.create_queue("a")
        client.send_messages("a", BODIES[:3])
    for source, target in (("rsmq:a", "chasqui:b"), ("chasqui:b", "gomq:b"), ("gomq:b", "rsmq:b")):
        move(each, url, source, target)
        assert [body for _, body in journalled(url, target)] == [
            to_payload(body) if target == "chasqui:b" else body for body in BODIES[:3]
        ]
    assert journalled(url, "rsmq:b") == stored(each_db, "rsmq:b")


def test_without_being_asked_nothing_is_recorded(
    store: Store, server: Server, orders: Rsmq, db: redis.Redis
) -> None:
    move(store, server.url, "rsmq:a", "chasqui:b", journal=False)
    move(store, server.url, "chasqui:b", "gomq:b", journal=False)
    move(store, server.url, "gomq:b", "rsmq:b", journal=False)
    assert [*db.scan_iter("{tambo:*")] == []


@pytest.mark.parametrize("target", TARGETS[:2])
def test_a_delayed_message_is_recorded_with_its_delay(
    store: Store, server: Server, rsmq: Rsmq, target: str
) -> None:
    rsmq.create_queue("a")
    rsmq.send_message("a", b"now")
    rsmq.send_message("a", b"later", delay=600)
    move(store, server.url, "rsmq:a", target, name="order")
    now, later = records(server.url, target.partition(":")[0], "b")
    assert now.delay_ms is None
    assert later.delay_ms is not None
    assert 500_000 < later.delay_ms <= 600_000
    assert {now.name, later.name} == ({"order"} if target == "chasqui:b" else {""})


def test_jobs_of_any_form_are_recorded(store: Store, server: Server, db: redis.Redis) -> None:
    here = ChasquiKeys("a")
    odd = b"\x94\xa1i\x92\x01\x02\x00\x00"
    db.xadd(here.stream, {"d": odd, "n": "mail"})
    db.xadd(here.stream, {"d": b"junk"})
    db.zadd(here.delayed, {b"\x00junk": 10**13})
    assert move(store, server.url, "chasqui:a", "chasqui:b").moved == 3
    found = records(server.url, "chasqui", "b")
    assert [(each.id, each.name, each.body) for each in found] == [
        ("i", "mail", decode_envelope(odd).payload),
        ("", "", b"junk"),
        ("", "", b"junk"),
    ]


def test_invalid_elements_are_recorded_unchanged(
    store: Store, server: Server, db: redis.Redis
) -> None:
    db.rpush(gomq_keys.queue("a"), b"junk", gomq_wire.encode("x", "d", b"sound"))
    move(store, server.url, "gomq:a", "gomq:b")
    assert journalled(server.url, "gomq:b") == [("", b"junk"), ("x", b"sound")]


@pytest.mark.parametrize("target", TARGETS)
def test_a_full_journal_stops_a_migration_that_goes_on_later(
    store: Store, server: Server, orders: Rsmq, db: redis.Redis, target: str
) -> None:
    protocol = target.partition(":")[0]
    with pytest.raises(QueueError, match=r"journal of queue 'b' is full.*100 messages are in tran"):
        move(store, server.url, "rsmq:a", target, journal=TIGHT)
    assert len(stored(db, target)) == 1000
    before = journalled(server.url, target)
    assert before == stored(db, target)
    found = state(server.url, protocol, "b")
    assert found is not None
    assert found.refused == 100
    commit_all(server.url, protocol, "b")
    report = move(store, server.url, "rsmq:a", target, journal=TIGHT)
    assert (report.moved, report.departed.count) == (100, 1100)
    # The last that was read stays.
    assert before + journalled(server.url, target)[1:] == stored(db, target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_migration_that_is_killed_anywhere_is_recorded_once(
    store: Store, server: Server, rsmq: Rsmq, db: redis.Redis, target: str
) -> None:
    for round_trips in range(1, 40):
        db.flushall()
        rsmq.create_queue("a")
        rsmq.send_messages("a", BODIES)
        work = partial(move, store, server.url, "rsmq:a", target)
        killed = dies_after(round_trips, work)
        assert journalled(server.url, target) == stored(db, target), round_trips
        work()
        assert journalled(server.url, target) == stored(db, target), round_trips
        assert len(stored(db, target)) == len(BODIES), round_trips
        if not killed:
            assert round_trips > 6
            return
    pytest.fail("it took more round trips than were tried")


def test_the_command_journals_with_the_flag(server: Server, orders: Rsmq) -> None:
    words = ("pipeline", "migrate", "rsmq:a", "rsmq:b", "--to-ns", "x", "--wait", "0s")
    assert call(tambo, "tambo", *words, "--journal", url=server.url).code == 0
    assert bodies(server.url, "rsmq", "x:b") == BODIES


@pytest.mark.parametrize("target", TARGETS[:2])
def test_a_cluster_is_refused_in_one_line(cluster: Cluster, target: str) -> None:
    url = cluster.nodes[0].url
    ns = f"{{{target[:4]}}}"
    with Rsmq(url, ns=ns) as rsmq:
        rsmq.create_queue("a")
        rsmq.send_message("a", b"one")
    store = Store(url)
    ends = [QueueLocation(address(each), url, ns) for each in ("rsmq:a", target)]
    try:
        moved_to = endpoint_of(store, ends[1], journal=True)
        with pytest.raises(StoreError, match="a journal cannot be kept on a cluster"):
            migrate(endpoint_of(store, ends[0]), moved_to, move_name(*ends), wait_s=0.0)
        # Nothing has left.
        assert endpoint_of(store, ends[0]).count().waiting == 1
    finally:
        store.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        yield started


# ── replays ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("target", TARGETS)
def test_replayed_messages_are_recorded_under_their_new_ids(
    store: Store, server: Server, db: redis.Redis, target: str
) -> None:
    assert again(store, server.url, target).sent == len(BODIES)
    assert journalled(server.url, target) == stored(db, target)
    assert len(stored(db, target)) == len(BODIES)


@pytest.mark.parametrize("target", TARGETS)
def test_a_full_journal_stops_a_replay_that_goes_on_later(
    store: Store, server: Server, db: redis.Redis, target: str
) -> None:
    with pytest.raises(QueueError, match=r"is full.*1000 messages were sent, resume with --id r"):
        again(store, server.url, target, TIGHT)
    before = journalled(server.url, target)
    assert before == stored(db, target)
    commit_all(server.url, target.partition(":")[0], "b")
    assert again(store, server.url, target, TIGHT).sent == 100
    assert before + journalled(server.url, target)[1:] == stored(db, target)


@pytest.mark.parametrize("target", TARGETS)
def test_a_replay_that_is_killed_anywhere_is_recorded_once(
    store: Store, server: Server, db: redis.Redis, target: str
) -> None:
    for round_trips in range(1, 40):
        db.flushall()
        killed = dies_after(round_trips, partial(again, store, server.url, target))
        assert journalled(server.url, target) == stored(db, target), round_trips
        again(store, server.url, target)
        assert journalled(server.url, target) == stored(db, target), round_trips
        if not killed:
            assert round_trips > 3
            return
    pytest.fail("it took more round trips than were tried")
