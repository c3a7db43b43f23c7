from __future__ import annotations

from tambomq.console.read.server import read_server, version_of
from tests.console.read.conftest import CountingStore


async def test_the_server_says_what_it_is(counting_store: CountingStore) -> None:
    found = await read_server(counting_store)
    assert found.status.ok
    assert found.status.version.startswith("Valkey ")
    assert found.status.memory_bytes > 0
    assert found.status.latency_ms is not None
    assert found.now_ms > 1_700_000_000_000


def test_a_server_that_hides_its_version_has_none() -> None:
    assert version_of({}) == ""
    assert version_of({"redis_version": "8.6.0"}) == "Redis 8.6.0"
