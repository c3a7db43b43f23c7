from __future__ import annotations

import asyncio

import pytest
import redis

from tambomq.errors import ComponentFailed, StoreUnavailable
from tambomq.journal import JournalReader
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import NAMESPACE
from tambomq.rsmq.ops.journal import journal_keys
from tambomq.serve.rsmq import RsmqComponent
from tests.serve.components import given, opened
from tests.servers import Server, eventually_async


async def test_a_server_that_is_away_fails_the_check(
    private_server: Server,
) -> None:
    component = RsmqComponent(given(private_server))
    async with opened(component):
        private_server.kill()
        with pytest.raises(StoreUnavailable):
            await component.check()
        private_server.restart()
        await component.check()


async def test_expired_messages_are_dead_lettered_without_a_consumer(
    server: Server, rsmq: Rsmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tambomq.serve.rsmq.SWEEP_EVERY_S", 0.01)
    rsmq.create_queue("orders")
    rsmq.create_queue("plain")
    rsmq.set_queue_bounds("orders", message_ttl_s=0.05)
    for queue in ("orders", "plain"):
        rsmq.send_messages(queue, ["one", "two"])
    component = RsmqComponent(given(server))
    async with opened(component):
        watching = asyncio.create_task(component.watch())
        await eventually_async(lambda: "orders-dead" in rsmq.list_queues())
        await eventually_async(lambda: "orders" in component._bounded)
        metrics = {each.name: each.labels for each in await component.metrics()}
        watching.cancel()
    orders = (("queue", "orders"),)
    assert metrics == {"refused": orders, "overflowed": orders, "expired": orders}
    assert [each.reason for each in rsmq.peek_messages("orders-dead")] == ["expired"] * 2
    assert rsmq.get_queue_attributes("plain").msgs == 2


async def test_a_damaged_queue_stops_no_other_and_a_journal_records_what_expired(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tambomq.serve.rsmq.SWEEP_EVERY_S", 0.01)
    with Rsmq(server.url, journal=("recorded",)) as rsmq, redis.Redis.from_url(server.url) as db:
        for queue in ("damaged", "plain", "recorded"):
            rsmq.create_queue(queue)
            rsmq.set_queue_bounds(queue, message_ttl_s=0.05)
            rsmq.send_message(queue, "one")
        db.set("rsmq:damaged-dead", "no queue")
        component = RsmqComponent(given(server))
        async with opened(component):
            watching = asyncio.create_task(component.watch())
            dead = {"plain-dead", "recorded-dead"}
            await eventually_async(lambda: dead <= set(rsmq.list_queues()))
            await component._sweep()
            watching.cancel()
        assert rsmq.get_queue_attributes("damaged").msgs == 1
        assert not db.exists(journal_keys(NAMESPACE, "plain").state)
    with JournalReader(server.url, "rsmq", "recorded") as journal:
        assert [each.record.event for each in journal.read()] == ["sent", "dead"]
    assert len([each for each in caplog.messages if "'damaged' are not swept" in each]) == 1


async def test_a_server_that_does_not_run_its_scripts_is_refused(private_server: Server) -> None:
    with redis.Redis.from_url(private_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "default", "-@scripting")
    component = RsmqComponent(given(private_server))
    with pytest.raises(ComponentFailed, match=r"^rsmq cannot be served: .*--no-rsmq$"):
        await component.start()
    await component.stop()
