"""The health check fails for a server that answers but refuses writes."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import redis

from tambomq.errors import StoreFull, StoreReadOnly
from tambomq.serve.chasqui import ChasquiComponent
from tambomq.serve.health import ProcessHealth
from tambomq.serve.rsmq import RsmqComponent
from tambomq.serve.store import ExternalStore
from tambomq.settings.load import ChasquiSettings
from tambomq.store.keys import PROBE
from tests.serve.components import given, opened
from tests.servers import Server
from tests.servers.refusal import REFUSALS, Refusal, refusing_writes
from tests.store.twins import command


@pytest.mark.parametrize("why", REFUSALS)
async def test_health_has_the_reason_why_writes_are_refused(
    private_server: Server, why: Refusal
) -> None:
    redis_component = given(private_server)
    components = (
        redis_component,
        RsmqComponent(redis_component),
        ChasquiComponent(ChasquiSettings(), redis_component),
    )
    health = ProcessHealth()
    health.expect(components)
    async with AsyncExitStack() as stack:
        for component in components:
            await stack.enter_async_context(opened(component))
            health.started(component)
        assert all(verdict.ok for verdict in (await health.look()).values())
        with refusing_writes(private_server, why):
            # What was found last is kept for a second.
            health.stopped(components[0])
            health.started(components[0])
            for verdict in (await health.look()).values():
                assert not verdict.ok
                assert verdict.why.startswith(f"{why} ")
        await redis_component.check()


async def test_a_server_that_refuses_writes_may_be_served_from(private_server: Server) -> None:
    with refusing_writes(private_server, "NOREPLICAS"):
        component = given(private_server)
        async with opened(component), opened(RsmqComponent(component)):
            with pytest.raises(StoreReadOnly):
                await component.check()


async def test_a_server_without_memory_fails_the_check(private_server: Server) -> None:
    with redis.Redis.from_url(private_server.url) as db:
        component = given(private_server)
        async with opened(component):
            db.config_set("maxmemory", 1)
            with pytest.raises(StoreFull):
                await component.check()


async def test_a_check_leaves_one_key_that_expires(server: Server, db: redis.Redis) -> None:
    component = given(server)
    async with opened(component):
        await component.check()
        await component.check()
    assert db.keys() == [PROBE.encode()]
    ttl_ms = db.pttl(PROBE)
    assert isinstance(ttl_ms, int)
    assert 0 < ttl_ms <= 5000


async def test_a_login_that_may_not_write_the_probe_key_is_healthy(
    private_server: Server,
) -> None:
    with redis.Redis.from_url(private_server.url) as db:
        command(db, "ACL", "SETUSER", "limited", "on", ">secret", "+@all", "~rsmq:*")
        component = ExternalStore(f"redis://limited:secret@127.0.0.1:{private_server.port}")
        async with opened(component):
            await component.check()
            assert db.keys() == []
