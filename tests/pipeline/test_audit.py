"""An audit finds each kind of damage, mends it, and says nothing about queues that are well."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import redis

from tambomq.bulk.audit import Finding
from tambomq.chasqui import BlockingQueue, RepeatPattern
from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.chasqui.wire.envelope import encode_envelope, encode_member
from tambomq.chasqui.wire.msgpack import encode_payload
from tambomq.cli.main import tambo
from tambomq.errors import InvalidValue
from tambomq.gomq import keys as gomq_keys
from tambomq.gomq import wire as gomq_wire
from tambomq.gomq.model import Options
from tambomq.gomq.ops import messages as gomq_ops
from tambomq.pipeline.audit import PARTS, RULES, Audit
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.store.sync import Store
from tests.cli.transcript import Done, call
from tests.servers import Server

RSMQ = RsmqKeys()
JOBS = ChasquiKeys("jobs")
ID = "g" * 32
OTHER = "h" * 32
JOURNAL = "{tambo:rsmq:q}:journal"
MESSAGE = gomq_wire.encode("c0ffee", "2026-01-01T00:00:00Z", b"x")


@pytest.fixture
def sound(rsmq: Rsmq, server: Server, store: Store, db: redis.Redis) -> redis.Redis:
    """Queues of every protocol with something in each of their parts, and nothing wrong."""
    rsmq.create_queue("q")
    for id in rsmq.send_messages("q", [b"x", b"y"]):
        rsmq.delete_message("q", id)
    rsmq.send_messages("q", [b"a", b"b"])
    rsmq.receive_message("q")
    rsmq.send_message("q", b"later", delay=1000)
    with BlockingQueue("jobs", redis_url=server.url) as queue:
        queue.add("mail", {"to": "ada"})
        queue.add("mail", {"to": "bob"}, delay=timedelta(minutes=1), job_id="known")
        queue.upsert_repeatable_job("tick", {}, repeat=RepeatPattern.every(60_000))
    db.xgroup_create(JOBS.stream, "default", "0", mkstream=True)
    db.xreadgroup("default", "someone", {JOBS.stream: ">"}, count=1)
    for consumer in ("one", "two_three"):
        store.run(gomq_ops.subscribe("k_1", consumer, "peer_9", Options()))
    store.run(gomq_ops.push("k_1", [MESSAGE]))
    store.run(gomq_ops.dispatch("k_1"))
    store.run(gomq_ops.push("k_1", [MESSAGE]))
    db.xadd(JOURNAL, {"e": "sent", "id": ID, "ts": 1, "d": "body"})
    return db


def envelope(id: str = "j1") -> bytes:
    return encode_envelope(Envelope(id, encode_payload(1), 1))


def entries(db: redis.Redis, stream: str) -> list[Any]:
    rows: Any = db.xrange(stream)
    return list(rows)


Damage = Callable[[redis.Redis], Any]


def hurt_pending(db: redis.Redis) -> None:
    [(entry, _)] = entries(db, JOBS.stream)
    db.xdel(JOBS.stream, entry)


def hurt_index(db: redis.Redis) -> None:
    db.set(JOBS.index("ghost"), b"nothing", ex=100)
    db.set(JOBS.marker("ghost"), b"1", ex=100)


MENDED: dict[str, Damage] = {
    "rsmq.member-without-body": lambda db: db.zadd("rsmq:q", {ID: 1}),
    "rsmq.body-without-member": lambda db: db.hset("rsmq:q:Q", ID, "lost"),
    "rsmq.field-without-message": lambda db: db.hset("rsmq:q:Q", f"{OTHER}:rc", 3),
    "rsmq.sent-less-than-held": lambda db: db.hset("rsmq:q:Q", "totalsent", 1),
    "rsmq.queue-not-listed": lambda db: db.srem("rsmq:QUEUES", "q"),
    "rsmq.queue-without-attributes": lambda db: db.sadd("rsmq:QUEUES", "never-made"),
    "chasqui.undecodable-entry": lambda db: db.xadd(JOBS.stream, {"d": b"\xc1"}),
    "chasqui.undecodable-member": lambda db: db.zadd(JOBS.delayed, {b"\x01x\xc1": 1 << 45}),
    "chasqui.pending-without-entry": hurt_pending,
    "chasqui.index-without-member": hurt_index,
    "chasqui.index-without-marker": lambda db: db.delete(JOBS.marker("known")),
    "chasqui.schedule-without-spec": lambda db: db.zadd(JOBS.repeat, {"ghost": 1 << 45}),
    "chasqui.lock-for-ever": lambda db: db.set(JOBS.promoter_lock, "who"),
    "gomq.queue-without-peer": lambda db: db.srem("PEERS_two_three", "peer_9"),
    "gomq.consumers-without-subscribed-key": lambda db: db.srem("SUBSCRIBED_KEYS", "QUEUE_k_1"),
    "gomq.subscribed-key-without-consumers": lambda db: db.sadd("SUBSCRIBED_KEYS", "QUEUE_none"),
    "gomq.consumer-without-subscription": lambda db: db.srem("SUBSCRIPTIONS_one", "k_1"),
    "gomq.subscription-without-consumer": lambda db: db.sadd("SUBSCRIPTIONS_new", "k_1"),
}
REPORTED: dict[str, Damage] = {
    "rsmq.member-that-is-no-id": lambda db: db.zadd("rsmq:q", {"short": 1}),
    "rsmq.attribute-that-is-no-number": lambda db: db.hset("rsmq:q:Q", "delay", "soon"),
    "rsmq.key-of-another-type": lambda db: (db.sadd("rsmq:QUEUES", "odd"), db.set("rsmq:odd", 1)),
    "chasqui.undecodable-letter": lambda db: db.xadd(JOBS.dlq, {"d": b"\xc1", "reason": "other"}),
    "chasqui.mixed-dialects": lambda db: db.zadd(
        JOBS.delayed, {encode_member("mail", envelope(), "engine"): 1 << 45}
    ),
    "chasqui.spec-without-schedule": lambda db: db.delete(JOBS.repeat),
    "chasqui.undecodable-spec": lambda db: (
        db.hset(JOBS.spec("bad"), "spec", b"\xc1"),
        db.zadd(JOBS.repeat, {"bad": 1 << 45}),
    ),
    "chasqui.key-of-another-type": lambda db: db.set(ChasquiKeys("odd").stream, 1),
    "gomq.undecodable-message": lambda db: db.rpush("QUEUE_k_1", "{"),
    "gomq.queue-without-subscription": lambda db: db.rpush("MESSAGES_who_knows", MESSAGE),
    "journal.undecodable-entry": lambda db: db.xadd(JOURNAL, {"d": "body"}),
    "journal.unknown-protocol": lambda db: db.xadd("{tambo:smtp:q}:journal", {"e": "sent"}),
}


def found(store: Store) -> list[Finding]:
    return [each for _, wrong in Audit(store).look() for each in wrong]


def test_every_rule_is_tested_with_damage() -> None:
    timeouts = {rule.name: bool(rule.repair) for part in RULES.values() for rule in part}
    assert {name for name, mendable in timeouts.items() if mendable} == set(MENDED)
    assert {name for name, mendable in timeouts.items() if not mendable} == set(REPORTED)


def test_the_audit_finds_nothing_in_undamaged_queues(sound: redis.Redis, store: Store) -> None:
    assert found(store) == []
    looked = [queue for queue, _ in Audit(store).look()]
    assert looked == ["rsmq:q", "chasqui:jobs", "gomq:k_1", f"journal:{JOURNAL}"]


def test_the_audit_of_an_empty_server_looks_at_no_queue(store: Store, db: redis.Redis) -> None:
    db.flushall()
    assert list(Audit(store).look()) == []


@pytest.mark.parametrize("rule", [*MENDED, *REPORTED])
def test_damage_is_found_and_nothing_else(sound: redis.Redis, store: Store, rule: str) -> None:
    {**MENDED, **REPORTED}[rule](sound)
    assert [each.rule.name for each in found(store)] == [rule]


@pytest.mark.parametrize("rule", MENDED)
def test_damage_is_mended_once(sound: redis.Redis, store: Store, rule: str) -> None:
    MENDED[rule](sound)
    [finding] = found(store)
    assert Audit(store).mend(finding)
    assert found(store) == []
    assert not Audit(store).mend(finding)


def test_a_body_that_was_lost_is_received_again(
    sound: redis.Redis, store: Store, rsmq: Rsmq
) -> None:
    MENDED["rsmq.body-without-member"](sound)
    [finding] = found(store)
    Audit(store).mend(finding)
    assert ID in {message.id for message in rsmq.peek_messages("q", 10)}


def test_repairing_an_entry_that_no_worker_can_run_makes_it_a_dead_letter(
    sound: redis.Redis, store: Store
) -> None:
    entry = sound.xadd(JOBS.stream, {"d": b"\xc1", "n": "mail"})
    [finding] = found(store)
    Audit(store).mend(finding)
    [(_, letter)] = entries(sound, JOBS.dlq)
    assert (letter[b"d"], letter[b"source_id"], letter[b"reason"]) == (
        b"\xc1",
        entry,
        b"decode_failed",
    )


def test_a_client_that_is_known_again_gets_its_messages(sound: redis.Redis, store: Store) -> None:
    MENDED["gomq.queue-without-peer"](sound)
    [finding] = found(store)
    Audit(store).mend(finding)
    assert sound.smembers(gomq_keys.peers("two_three")) == {b"peer_9"}
    assert int(sound.get(gomq_keys.last_action("peer_9")) or 0) <= time.time()


def test_many_messages_are_looked_at_page_by_page(
    rsmq: Rsmq, store: Store, db: redis.Redis
) -> None:
    rsmq.create_queue("long")
    ids = rsmq.send_messages("long", [b"x"] * 3500)
    db.hdel("rsmq:long:Q", *ids[::700])
    assert sorted(each.item.decode() for each in found(store)) == sorted(ids[::700])


def test_an_unknown_protocol_is_refused(store: Store) -> None:
    with pytest.raises(InvalidValue, match="rsmq, chasqui, gomq, journal"):
        list(Audit(store).look(["smtp"]))


# ── the command ──────────────────────────────────────────────────────────────

Run = Callable[..., Done]


@pytest.fixture
def run(server: Server) -> Run:
    return partial(call, tambo, "tambo", "pipeline", "audit", url=server.url)


def test_the_command_says_that_all_is_well(run: Run, sound: redis.Redis) -> None:
    done = run()
    assert (done.code, done.out) == (0, "Looked at 4 queues: all is well.\n")


def test_the_command_shows_what_is_wrong_and_exits_4(run: Run, sound: redis.Redis) -> None:
    MENDED["rsmq.member-without-body"](sound)
    REPORTED["gomq.undecodable-message"](sound)
    done = run()
    assert done.code == 4
    assert f"rsmq:q {ID}" in done.out
    assert "delete the id" in done.out
    assert "(decide yourself)" in done.out
    only = run("chasqui", "journal")
    assert only.code == 0


def test_the_command_repairs_only_when_it_is_confirmed(run: Run, sound: redis.Redis) -> None:
    MENDED["rsmq.member-without-body"](sound)
    MENDED["gomq.consumer-without-subscription"](sound)
    assert "--yes" in run("--repair").err
    assert run().code == 4
    done = run("--repair", "--yes")
    assert done.code == 0
    assert "Repaired 2." in done.out
    assert run().code == 0


def test_the_command_exits_4_while_something_is_left(run: Run, sound: redis.Redis) -> None:
    MENDED["rsmq.member-without-body"](sound)
    REPORTED["rsmq.attribute-that-is-no-number"](sound)
    assert run("--repair", "--yes").code == 4
    assert run("--repair", "--yes").code == 4


def test_the_command_prints_json(run: Run, sound: redis.Redis) -> None:
    sound.zadd("rsmq:q", {ID: 1})
    shown = json.loads(run("--json").out)
    assert shown["queues"] == 4
    [finding] = shown["findings"]
    assert (finding["rule"], finding["key"], finding["item"]) == (
        "rsmq.member-without-body",
        "rsmq:q",
        ID,
    )


def test_the_command_lists_its_rules(run: Run) -> None:
    shown = json.loads(run("--rules", "--json").out)
    assert {each["rule"].partition(".")[0] for each in shown} == set(PARTS)
    assert "rsmq.member-without-body" in run("rsmq", "--rules").out
