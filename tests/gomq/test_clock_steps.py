"""The clock of Redis is set forward while clients handle what they were given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tambomq.gomq import AsyncGomqClient, GomqServer
from tambomq.gomq.model import Options
from tests.servers import binaries, eventually_async
from tests.servers.clock import SteppedServer, stepped

pytestmark = pytest.mark.slow

TIMEOUT_S = 6.0
# The steps are longer, and shorter than what is noted of a peer is kept: 60 s.


@pytest.fixture
def clocked() -> Iterator[SteppedServer]:
    with stepped(binaries.valkey()) as server:
        yield server


async def wait_until_a_silent_peer_is_disconnected(address: str, db: redis.Redis) -> None:
    async with AsyncGomqClient(address, peer="silent") as silent:
        await silent.subscribe("other", "silent")
        await eventually_async(lambda: not db.exists("PEERS_silent"), within_s=60)


async def test_no_step_of_the_clock_takes_a_batch_from_a_client_that_is_there(
    clocked: SteppedServer,
) -> None:
    options = Options(peer_timeout_s=TIMEOUT_S)
    with redis.Redis.from_url(clocked.url) as db:

        def is_heard() -> bool:
            assert db.smembers("PEERS_c") == {b"slow"}
            return bool(int(db.get("LASTACTION_slow") or 0) > stepped_at)

        async with GomqServer(clocked.url, port=0, options=options) as broker:
            address = "{}:{}".format(*broker.address)
            async with AsyncGomqClient(address, peer="slow") as client:
                await client.subscribe("k", "c")
                await client.publish("k", "one")
                assert len(await client.observe("c")) == 1
                # Whoever is silent is looked for by now.
                await wait_until_a_silent_peer_is_disconnected(address, db)
                for _ in range(3):
                    stepped_at = db.time()[0] + 30
                    clocked.step(40)
                    await eventually_async(is_heard, within_s=20)
                await wait_until_a_silent_peer_is_disconnected(address, db)
                assert db.smembers("PEERS_c") == {b"slow"}
                assert await client.observe("c") == []
                assert not db.exists("HANDED_c_slow")
                # A clock that is set back keeps no silent peer connected either.
                clocked.step(-600)
                await wait_until_a_silent_peer_is_disconnected(address, db)
