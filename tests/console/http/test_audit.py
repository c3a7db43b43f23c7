from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator

import msgspec
import pytest
import redis

from tambomq.console.actions.model import AuditEntry
from tambomq.console.http import audit
from tambomq.console.http.audit import MAX_REFUSALS, RedisAuditLog
from tambomq.console.http.keys import AUDIT, ENTRY
from tambomq.log import JsonFormatter, TextFormatter
from tambomq.store.aio import AsyncStore
from tests.servers import Server

ENTRY_OF_A_PURGE = AuditEntry(
    at_ms=1,
    user="operator",
    role="operator",
    address="127.0.0.1",
    verb="purge",
    target="rsmq:orders",
    outcome="done",
)


@pytest.fixture
async def log(server: Server) -> AsyncIterator[RedisAuditLog]:
    store = AsyncStore(server.url, patience_s=0)
    yield RedisAuditLog(store)
    await store.close()


async def test_entries_are_kept_newest_first(log: RedisAuditLog) -> None:
    for number in range(3):
        await log.record(msgspec.structs.replace(ENTRY_OF_A_PURGE, at_ms=number))
    assert [each.at_ms for each in await log.entries(2)] == [2, 1]
    assert (await log.entries(1))[0] == msgspec.structs.replace(ENTRY_OF_A_PURGE, at_ms=2)


async def test_the_stream_is_bounded(
    log: RedisAuditLog, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MAX_ENTRIES", 10)
    for _ in range(300):
        await log.record(ENTRY_OF_A_PURGE)
    assert db.xlen(AUDIT) < 200


async def test_refusals_cannot_push_out_what_was_done(log: RedisAuditLog) -> None:
    await log.record(ENTRY_OF_A_PURGE)
    refused = msgspec.structs.replace(ENTRY_OF_A_PURGE, outcome="refused")
    for _ in range(MAX_REFUSALS * 3):
        await log.record(refused)
    entries = await log.entries(500)
    assert len(entries) <= MAX_REFUSALS + 20
    assert entries[-1].outcome == "done"


async def test_long_texts_are_cut_and_passwords_masked(log: RedisAuditLog) -> None:
    target = "rsmq:" + "x" * 10_000
    detail = "redis://u:s3cret@h \ud800"
    await log.record(msgspec.structs.replace(ENTRY_OF_A_PURGE, target=target, detail=detail))
    (entry,) = await log.entries(1)
    assert len(entry.target) < 600
    assert "s3cret" not in entry.detail


async def test_foreign_entries_are_left_out(log: RedisAuditLog, db: redis.Redis) -> None:
    await log.record(ENTRY_OF_A_PURGE)
    db.xadd(AUDIT, {"other": "x"})
    db.xadd(AUDIT, {ENTRY: b"\xff"})
    assert await log.entries(10) == [ENTRY_OF_A_PURGE]


async def test_without_redis_an_entry_is_still_logged(
    unused_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = AsyncStore(unused_url, patience_s=0)
    with caplog.at_level(logging.INFO):
        await RedisAuditLog(store).record(ENTRY_OF_A_PURGE)
    await store.close()
    first, second = caplog.messages
    assert "operator (operator, 127.0.0.1) purge rsmq:orders: done" in first
    assert "does not have this entry" in second


@pytest.fixture
def unused_url() -> str:
    return "redis://127.0.0.1:1"


def test_a_queue_name_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    hostile = msgspec.structs.replace(ENTRY_OF_A_PURGE, target="rsmq:a\n2026 INFO \x1b[2Jforged")
    with caplog.at_level(logging.INFO):
        audit.write_log(hostile)
    (record,) = caplog.records
    assert "\n" not in TextFormatter().format(record)
    assert "\x1b" not in TextFormatter().format(record)
    assert json.loads(JsonFormatter().format(record))["audit_verb"] == "purge"
