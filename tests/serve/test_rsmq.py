from __future__ import annotations

import asyncio

import pytest
import redis

from tambomq.errors import ComponentFailed, StoreUnavailable
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys
from tambomq.serve import rsmq as module
from tambomq.serve.rsmq import RsmqComponent
from tests.serve.components import given, numbers, opened
from tests.servers import Server


async def test_its_numbers_are_those_of_the_queues(server: Server, rsmq: Rsmq) -> None:
    rsmq.create_queue("orders")
    rsmq.create_queue("empty")
    rsmq.send_messages("orders", ["a", "b", "c"])
    assert rsmq.receive_message("orders", vt=600) is not None
    component = RsmqComponent(given(server))
    async with opened(component):
        await component.check()
        found = numbers(await component.metrics())
    assert found == {
        ("queues",): 2,
        ("messages", "orders"): 3,
        ("hidden", "orders"): 1,
        ("sent", "orders"): 3,
        ("received", "orders"): 1,
        ("messages", "empty"): 0,
        ("hidden", "empty"): 0,
        ("sent", "empty"): 0,
        ("received", "empty"): 0,
    }


async def test_one_sample_serves_concurrent_callers(server: Server, rsmq: Rsmq) -> None:
    component = RsmqComponent(given(server))
    async with opened(component):
        before = await component.metrics()
        rsmq.create_queue("new")
        found = await asyncio.gather(*(component.metrics() for _ in range(5)))
    assert all(each is before for each in found)


async def test_only_the_first_queues_have_numbers(
    server: Server, rsmq: Rsmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_QUEUES", 3)
    monkeypatch.setattr(module, "_CHUNK", 2)
    for name in "edcba":
        rsmq.create_queue(name)
    component = RsmqComponent(given(server))
    async with opened(component):
        found = numbers(await component.metrics())
    assert found["queues",] == 5
    assert {key[1] for key in found if key[0] == "messages"} == {"a", "b", "c", "d"}


async def test_a_damaged_queue_leaves_the_others_their_numbers(
    server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    rsmq.create_queue("good")
    db.sadd(Keys().queues, "gone", "not a legal name", b"\xff")
    rsmq.create_queue("bad")
    db.set(Keys().data("bad"), "no hash")
    component = RsmqComponent(given(server))
    async with opened(component):
        found = numbers(await component.metrics())
    assert {key[1] for key in found if key[0] == "messages"} == {"good"}


async def test_a_server_that_is_away_fails_the_check_and_has_no_numbers(
    private_server: Server,
) -> None:
    component = RsmqComponent(given(private_server))
    async with opened(component):
        private_server.kill()
        with pytest.raises(StoreUnavailable):
            await component.check()
        with pytest.raises(StoreUnavailable):
            await component.metrics()
        private_server.restart()
        await component.check()
        assert numbers(await component.metrics()) == {("queues",): 0}


async def test_a_server_that_does_not_run_its_scripts_is_refused(private_server: Server) -> None:
    with redis.Redis.from_url(private_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "default", "-@scripting")
    component = RsmqComponent(given(private_server))
    with pytest.raises(ComponentFailed, match=r"^rsmq cannot be served: .*--no-rsmq$"):
        await component.start()
    await component.stop()
