"""Health tells of a server that answers, but takes no writes."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import redis

from tambomq.errors import StoreFull, StoreReadOnly
from tambomq.serve.chasqui import ChasquiDoor
from tambomq.serve.health import Health
from tambomq.serve.rsmq import RsmqDoor
from tambomq.serve.store import GivenStore
from tambomq.settings import ChasquiSettings
from tambomq.store.keys import PROBE
from tests.serve.doors import given, opened
from tests.servers import Server
from tests.servers.refusal import REFUSALS, Refusal, refusing_writes
from tests.store.twins import command


@pytest.mark.parametrize("why", REFUSALS)
async def test_health_has_the_reason_why_writes_are_refused(
    private_server: Server, why: Refusal
) -> None:
    redis_door = given(private_server)
    doors = (redis_door, RsmqDoor(redis_door), ChasquiDoor(ChasquiSettings(), redis_door))
    health = Health()
    health.expect(doors)
    async with AsyncExitStack() as stack:
        for door in doors:
            await stack.enter_async_context(opened(door))
            health.opened(door)
        assert all(verdict.ok for verdict in (await health.look()).values())
        with refusing_writes(private_server, why):
            # What was found last is kept for a second.
            health.closing(doors[0])
            health.opened(doors[0])
            for verdict in (await health.look()).values():
                assert not verdict.ok
                assert verdict.why.startswith(f"{why} ")
        await redis_door.check()


async def test_a_server_that_refuses_writes_may_be_served_from(private_server: Server) -> None:
    with refusing_writes(private_server, "NOREPLICAS"):
        door = given(private_server)
        async with opened(door), opened(RsmqDoor(door)):
            with pytest.raises(StoreReadOnly):
                await door.check()


async def test_a_server_without_memory_is_not_well(private_server: Server) -> None:
    with redis.Redis.from_url(private_server.url) as db:
        door = given(private_server)
        async with opened(door):
            db.config_set("maxmemory", 1)
            with pytest.raises(StoreFull):
                await door.check()


async def test_a_check_leaves_one_key_that_expires(server: Server, db: redis.Redis) -> None:
    door = given(server)
    async with opened(door):
        await door.check()
        await door.check()
    assert db.keys() == [PROBE.encode()]
    ttl_ms = db.pttl(PROBE)
    assert isinstance(ttl_ms, int)
    assert 0 < ttl_ms <= 5000


async def test_a_login_that_may_not_write_the_key_is_no_sign_of_illness(
    private_server: Server,
) -> None:
    with redis.Redis.from_url(private_server.url) as db:
        command(db, "ACL", "SETUSER", "limited", "on", ">secret", "+@all", "~rsmq:*")
        door = GivenStore(f"redis://limited:secret@127.0.0.1:{private_server.port}")
        async with opened(door):
            await door.check()
            assert db.keys() == []
