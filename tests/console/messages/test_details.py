"""Pages of single messages, read from a real server: each protocol, each state."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import redis

from tambomq.bulk.lease_model import LeaseRequest
from tambomq.chasqui import Job, Queue, Worker
from tambomq.chasqui.bulk.lease import ChasquiLeaseOps
from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.wire.envelope import encode_envelope
from tambomq.console.messages.details import read_message
from tambomq.console.messages.model import MessageDetail
from tambomq.console.model import QueueRef
from tambomq.errors import InvalidFormat, MessageNotFound
from tambomq.gomq import keys as gomq_keys
from tambomq.gomq import wire
from tambomq.gomq.model import Options
from tambomq.gomq.ops import messages as gomq_ops
from tambomq.journal.keys import JournalKeys
from tambomq.rsmq import Rsmq
from tambomq.rsmq.bulk.lease import RsmqLeaseOps
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.rsmq.ops import settle
from tambomq.store.aio import AsyncStore
from tests.chasqui.conftest import working
from tests.console.messages.conftest import HOSTILE
from tests.servers import Server, eventually_async

KEYS = Keys("payments")
ORDERS = QueueRef("rsmq", "orders")
PRICES = QueueRef("gomq", "prices")


def texts(found: MessageDetail) -> list[str]:
    return [each.text for each in found.timeline]


def verdicts(found: MessageDetail) -> dict[str, str]:
    return {gate.name: gate.verdict for gate in found.why.gates}


# --- ChasquiMQ ---


async def test_a_waiting_job_counts_those_before_it(
    aio: AsyncStore, payments: QueueRef, queue: Queue
) -> None:
    for number in range(2):
        await queue.add("charge", {"n": number})
    job = await queue.add("charge", {"n": 2})
    found = await read_message(aio, payments, job.id)
    assert (found.row.state, found.row.name, found.row.attempt) == ("visible", "charge", 0)
    assert found.why.headline == "It waits because no worker is alive."
    assert {gate.name: gate.now for gate in found.why.gates}["Line"] == "2 before it"
    assert found.body is not None
    assert (found.body.best, found.body.msgpack) == ("msgpack", '{\n  "n": 2\n}')
    assert texts(found) == ["Added"]
    assert found.actions == ["cancel", "delete"]


async def test_a_paused_queue_and_its_limiter_are_gates(
    aio: AsyncStore, payments: QueueRef, queue: Queue, db: redis.Redis, server: Server
) -> None:
    job = await queue.add("charge", 1)
    await queue.pause()
    db.hset(KEYS.limiter, mapping={"started": "3", "ends": "9999999999999"})
    found = await read_message(aio, payments, job.id)
    assert found.why.headline == "It waits because the queue is paused."
    assert verdicts(found)["Limiter"] == "open"
    ask = f"redis-cli -p {server.port}"
    assert ("1: paused", f"{ask} EXISTS '{{chasqui:payments}}:paused'") in found.commands


async def test_a_running_job_names_its_worker_progress_and_logs(
    aio: AsyncStore, payments: QueueRef, queue: Queue, db: redis.Redis
) -> None:
    job = await queue.add("charge", 1)
    db.xgroup_create(KEYS.stream, GROUP, "0")
    db.xreadgroup(GROUP, "pay-1", {KEYS.stream: ">"})
    db.set(KEYS.progress(job.id), "40")
    db.xadd(KEYS.log(job.id), {"line": "half \x1b[2J done"})
    found = await read_message(aio, payments, job.id)
    assert (found.row.state, found.row.holder) == ("in_flight", "pay-1")
    assert found.why.headline == "It runs on pay-1, for the 1st time."
    assert (found.progress, found.logs) == (40, ["half \x1b[2J done"])
    assert found.actions == ["cancel"]


async def test_a_job_that_a_limited_worker_has_fetched_does_not_run(
    server: Server, aio: AsyncStore, payments: QueueRef, queue: Queue
) -> None:
    async def charge(_: Job) -> None:
        pass

    jobs = await queue.add_bulk([{"name": "charge", "data": n} for n in range(3)])
    limited = Worker("payments", charge, redis_url=server.url, limiter=(1, 600_000))
    async with working(limited) as worker:
        await eventually_async(lambda: worker.stats.completed == 1)

        async def is_held() -> bool:
            found = await read_message(aio, payments, jobs[-1].id)
            return found.row.state == "in_flight" and verdicts(found).get("Limiter") == "holds"

        await eventually_async(is_held)
        found = await read_message(aio, payments, jobs[-1].id)
    assert found.why.headline.startswith("It waits for the rate limiter, which lets more start in ")
    assert ("Runs", "0") in found.facts


async def test_a_retry_shows_its_last_error_and_when_it_is_due(
    aio: AsyncStore, payments: QueueRef, queue: Queue, db: redis.Redis
) -> None:
    job = await queue.add("charge", 1, delay_ms=60_000, attempts=8)
    events: list[dict[Any, Any]] = [
        {"e": "active", "attempt": "1"},
        {"e": "failed", "attempt": "1", "reason": "503", "duration_us": "1210000"},
    ]
    for event in events:
        db.xadd(KEYS.events, {"id": job.id, **event})
    found = await read_message(aio, payments, job.id)
    assert found.why.headline.startswith("It is delayed: its first run is due in ")
    assert verdicts(found)["Promoter"] == "next"
    assert texts(found) == [
        "Run 1 is due",
        "Run 1 failed after 1.2 s: 503",
        "Run 1 began",
        "Added with a delay of 1 m",
    ]
    assert found.timeline[0].kind == "future"
    assert ("attempts", "8") in found.headers


async def test_a_dead_letter_shows_what_its_handler_raised(
    aio: AsyncStore, payments: QueueRef, db: redis.Redis
) -> None:
    fields: dict[Any, Any] = {
        "d": encode_envelope(Envelope("job-1", b"\x01", 1_700_000_000_000, 7)),
        "n": "charge",
        "source_id": "5-0",
        "reason": "retries_exhausted",
        "detail": "'to'",
        "error_type": "KeyError",
        "traceback": "Traceback …",
    }
    db.xadd(KEYS.dlq, fields)
    found = await read_message(aio, payments, "job-1")
    assert found.row.state == "dead"
    assert found.why.headline == "It is a dead letter: retries_exhausted."
    assert "Run 8 failed: KeyError: 'to'." in found.why.detail
    assert ("traceback", "Traceback …") in found.headers
    assert "replay" in found.actions


async def test_a_job_that_has_left_is_known_by_its_events(
    aio: AsyncStore, payments: QueueRef, db: redis.Redis
) -> None:
    db.xadd(KEYS.events, {"e": "completed", "id": "j", "n": "x", "duration_us": "2000000"})
    db.set(KEYS.result("j"), msgspec.msgpack.encode({"ok": True}))
    found = await read_message(aio, payments, "j")
    assert (found.row.state, found.row.name, found.body) == ("done", "x", None)
    assert found.why.headline.startswith("It completed ")
    assert found.why.headline.endswith(", after 2 s.")
    assert ("Result", '{"ok": true}') in found.facts


async def test_a_spark_lease_that_has_a_job_is_named(
    aio: AsyncStore, payments: QueueRef, queue: Queue
) -> None:
    job = await queue.add("charge", 1)
    request = LeaseRequest("payments", "nightly", "token", "host:7")
    ops = ChasquiLeaseOps()
    await aio.run(ops.attach(request))
    await aio.follow(ops.claim(request, 1, "claim-token", 10))
    found = await read_message(aio, payments, job.id)
    assert found.why.headline.startswith("The Spark lease nightly has it, for ")


async def test_the_journal_of_a_queue_is_part_of_the_timeline(
    aio: AsyncStore, payments: QueueRef, server: Server
) -> None:
    async with Queue("payments", redis_url=server.url, journal=True) as queue:
        job = await queue.add("charge", 1)
    found = await read_message(aio, payments, job.id)
    assert [(each.kind, each.source) for each in found.timeline] == [("added", "journal")]


async def test_a_large_job_is_shown_in_part(
    aio: AsyncStore, payments: QueueRef, queue: Queue
) -> None:
    job = await queue.add("big", {"x": "y" * (10 << 20)})
    found = await read_message(aio, payments, job.id)
    assert found.body is not None
    assert (found.body.cut_off, found.body.size_bytes > 10 << 20) == (True, True)
    assert len(msgspec.json.encode(found)) < 1 << 20


async def test_an_entry_that_is_no_job_is_found_by_its_entry(
    aio: AsyncStore, payments: QueueRef, db: redis.Redis
) -> None:
    db.xadd(KEYS.stream, {"d": b"\xffgarbage", "extra": "<b>"}, id="5-0")
    found = await read_message(aio, payments, "5-0")
    assert (found.row.state, found.actions) == ("visible", [])
    assert ("extra", "<b>") in found.headers


async def test_damaged_keys_around_a_job_hide_nothing_of_it(
    aio: AsyncStore, payments: QueueRef, queue: Queue, db: redis.Redis
) -> None:
    job = await queue.add("charge", 1)
    for key in (KEYS.events, KEYS.limiter, KEYS.log(job.id), KEYS.leases, KEYS.result(job.id)):
        db.delete(key)
        db.lpush(key, "not what it should be")
    found = await read_message(aio, payments, job.id)
    assert (found.row.state, texts(found)) == ("visible", ["Added"])


async def test_hostile_names_are_quoted_in_commands(aio: AsyncStore, db: redis.Redis) -> None:
    stored = encode_envelope(Envelope(HOSTILE, msgspec.msgpack.encode(HOSTILE), 1))
    db.xadd(Keys(HOSTILE).stream, {"d": stored, "n": HOSTILE.encode()})
    found = await read_message(aio, QueueRef("chasqui", HOSTILE), HOSTILE)
    assert found.row.id == HOSTILE
    assert all(command.isprintable() for _, command in found.commands)
    assert len(found.commands) > 5


@pytest.mark.parametrize("ref", ["chasqui:payments", "rsmq:orders", "gomq:prices", "kqueue:ticks"])
@pytest.mark.parametrize("id", ["nothing", "1-1", " ", "x" * 2000, "\ud800", HOSTILE, "0" * 32])
async def test_an_unknown_message_is_not_found(aio: AsyncStore, ref: str, id: str) -> None:
    with pytest.raises(MessageNotFound):
        await read_message(aio, QueueRef.parse(ref), id)


async def test_a_name_that_no_queue_can_have_is_refused(aio: AsyncStore) -> None:
    with pytest.raises(InvalidFormat):
        await read_message(aio, QueueRef("rsmq", "not a name"), "0" * 32)


# --- RSMQ ---


async def test_an_rsmq_message_in_each_of_its_states(aio: AsyncStore, rsmq: Rsmq) -> None:
    rsmq.create_queue("orders")
    first, second = rsmq.send_messages("orders", ['{"a": 1}', "two"])
    late = rsmq.send_message("orders", "late", delay=60)
    waiting = await read_message(aio, ORDERS, second)
    assert waiting.why.headline == "It waits in line behind 1 other."
    delayed = await read_message(aio, ORDERS, late)
    assert delayed.why.headline == "It was sent with a delay and becomes visible in 1 m."
    message = rsmq.receive_message("orders", vt=30)
    assert message is not None
    running = await read_message(aio, ORDERS, first)
    assert running.row.state == "in_flight"
    assert running.why.headline.endswith("visible again in 30 s.")
    assert texts(running)[0] == "Visible again, unless it is deleted"
    assert running.body is not None
    assert running.body.best == "json"
    await aio.run(settle.bury(RsmqKeys(), "orders", message, "orders-dead", "rejected"))
    dead = await read_message(aio, ORDERS, first)
    assert dead.why.headline == "It is a dead letter: rejected."
    assert dead.commands[0][1].endswith(f" ZSCORE rsmq:orders-dead {first}")


async def test_a_deleted_rsmq_message_is_known_by_its_journal(
    aio: AsyncStore, server: Server
) -> None:
    with Rsmq(server.url, journal=("orders",)) as client:
        client.create_queue("orders")
        id = client.send_message("orders", "hello")
        client.receive_message("orders")
        client.delete_message("orders", id)
    found = await read_message(aio, ORDERS, id)
    assert found.why.headline.startswith("It was deleted ")
    assert texts(found) == [
        "Deleted: a consumer was done with it",
        "Received by a consumer",
        "Added, 5 bytes",
    ]


async def test_a_spark_lease_that_has_a_message_is_named(aio: AsyncStore, rsmq: Rsmq) -> None:
    rsmq.create_queue("orders")
    id = rsmq.send_message("orders", "hello")
    request = LeaseRequest("orders", "nightly", "token", "host:7")
    ops = RsmqLeaseOps(RsmqKeys())
    await aio.run(ops.attach(request))
    await aio.follow(ops.claim(request, 1, "claim-token", 10))
    found = await read_message(aio, ORDERS, id)
    assert found.why.headline.startswith("The Spark lease nightly has it, for ")


async def test_a_large_rsmq_body_is_read_in_part(aio: AsyncStore, rsmq: Rsmq) -> None:
    rsmq.create_queue("orders", maxsize=-1)
    id = rsmq.send_message("orders", b"\xff" * (10 << 20))
    found = await read_message(aio, ORDERS, id)
    assert found.body is not None
    assert (found.body.best, found.body.size_bytes) == ("hex", 10 << 20)


# --- GOMQ and KqueueMsgQ ---


def element(number: int, payload: bytes = b"hello") -> bytes:
    return wire.encode(f"{number:020d}", "Tue Jul 18 10:15:04 UTC 2017", payload)


async def test_a_gomq_message_is_followed_from_the_main_queue_to_its_peer(
    aio: AsyncStore, db: redis.Redis
) -> None:
    id = f"{2:020d}"
    await aio.run(gomq_ops.push("prices", [element(1), element(2, b"x" * 100_000)]))
    found = await read_message(aio, PRICES, id)
    assert "no consumer is subscribed" in found.why.headline
    assert verdicts(found) == {
        "Due time": "open",
        "Consumers": "holds",
        "Peers": "next",
        "Line": "next",
    }
    assert found.body is not None
    assert found.body.size_bytes == 100_000
    await aio.run(gomq_ops.subscribe("prices", "risk", "risk-3", Options()))
    await aio.run(gomq_ops.dispatch("prices", observed=True))
    db.set(gomq_keys.last_action("risk-3"), "1000")
    silent = await read_message(aio, PRICES, id)
    assert silent.why.headline.startswith("The peer risk/risk-3 has not observed for ")
    kept: dict[str, Any] = {"acked": "", "batch": "b1"}
    await aio.run(gomq_ops.observe_kept("risk", "risk-3", Options(), **kept))
    handed = await read_message(aio, PRICES, id)
    assert handed.row.state == "in_flight"
    assert "not acknowledged the batch" in handed.why.headline
    assert handed.body is not None
    assert handed.body.text == "x" * 100_000


async def test_a_delivered_gomq_message_is_known_by_its_journal(
    aio: AsyncStore, db: redis.Redis
) -> None:
    journal = JournalKeys("gomq", "prices").journal
    db.xadd(journal, {"e": "sent", "id": "m", "d": "hello"})
    db.xadd(journal, {"e": "delivered", "id": "m", "n": "risk"})
    found = await read_message(aio, PRICES, "m")
    assert found.why.headline.startswith("It was delivered ")
    assert texts(found) == ["Delivered to risk", "Added, 5 bytes"]


async def test_a_kqueue_message_is_read_from_the_journal(aio: AsyncStore, db: redis.Redis) -> None:
    journal = JournalKeys("kqueue", "ticks").journal
    db.xadd(journal, {"e": "sent", "ts": "5000", "to": "0", "d": '{"n":1}'}, id="5000-0")
    found = await read_message(aio, QueueRef("kqueue", "ticks"), "5000-0")
    assert "when no consumer was subscribed" in found.why.headline
    assert found.body is not None
    assert found.body.best == "json"
    command = found.commands[0][1]
    assert command.endswith(" XRANGE '{tambo:kqueue:ticks}:journal' 5000-0 5000-0")
