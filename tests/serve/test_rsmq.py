from __future__ import annotations

import asyncio

import pytest
import redis

from tambomq.errors import DoorFailed, StoreUnavailable
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys
from tambomq.serve import rsmq as module
from tambomq.serve.rsmq import RsmqDoor
from tests.serve.doors import given, numbers, opened
from tests.servers import Server


async def test_its_numbers_are_those_of_the_queues(server: Server, rsmq: Rsmq) -> None:
    rsmq.create_queue("orders")
    rsmq.create_queue("empty")
    rsmq.send_messages("orders", ["a", "b", "c"])
    assert rsmq.receive_message("orders", vt=600) is not None
    door = RsmqDoor(given(server))
    async with opened(door):
        await door.check()
        told = numbers(await door.metrics())
    assert told == {
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


async def test_a_sample_is_taken_once_for_all_who_ask(server: Server, rsmq: Rsmq) -> None:
    door = RsmqDoor(given(server))
    async with opened(door):
        before = await door.metrics()
        rsmq.create_queue("new")
        told = await asyncio.gather(*(door.metrics() for _ in range(5)))
    assert all(each is before for each in told)


async def test_only_the_first_queues_have_numbers(
    server: Server, rsmq: Rsmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_QUEUES", 3)
    monkeypatch.setattr(module, "_CHUNK", 2)
    for name in "edcba":
        rsmq.create_queue(name)
    door = RsmqDoor(given(server))
    async with opened(door):
        told = numbers(await door.metrics())
    assert told["queues",] == 5
    assert {key[1] for key in told if key[0] == "messages"} == {"a", "b", "c", "d"}


async def test_a_damaged_queue_leaves_the_others_their_numbers(
    server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    rsmq.create_queue("good")
    db.sadd(Keys().queues, "gone", "not a legal name", b"\xff")
    rsmq.create_queue("bad")
    db.set(Keys().data("bad"), "no hash")
    door = RsmqDoor(given(server))
    async with opened(door):
        told = numbers(await door.metrics())
    assert {key[1] for key in told if key[0] == "messages"} == {"good"}


async def test_a_server_that_is_away_fails_the_check_and_has_no_numbers(
    private_server: Server,
) -> None:
    door = RsmqDoor(given(private_server))
    async with opened(door):
        private_server.kill()
        with pytest.raises(StoreUnavailable):
            await door.check()
        with pytest.raises(StoreUnavailable):
            await door.metrics()
        private_server.restart()
        await door.check()
        assert numbers(await door.metrics()) == {("queues",): 0}


async def test_a_server_that_does_not_run_its_scripts_is_refused(private_server: Server) -> None:
    with redis.Redis.from_url(private_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "default", "-@scripting")
    door = RsmqDoor(given(private_server))
    with pytest.raises(DoorFailed, match=r"^rsmq cannot be served: .*--no-rsmq$"):
        await door.start()
    await door.stop()
