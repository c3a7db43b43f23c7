"""Silent peers are disconnected, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from time import monotonic

import pytest
import redis

from tambomq.errors import StoreUnavailable, TamboError, WrongType
from tambomq.gomq.model import Options
from tambomq.gomq.ops import messages as message_ops
from tambomq.gomq.server.reaper import Reaper
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call
from tests.gomq.conftest import Peer, Serve, publish
from tests.servers import Server, eventually_async

OPTIONS = Options()


@pytest.fixture
async def aio(server: Server) -> AsyncIterator[AsyncStore]:
    """An asyncio store on an empty server."""
    opened = AsyncStore(server.url)
    yield opened
    await opened.close()


async def join(store: AsyncStore, *members: tuple[str, str]) -> None:
    """Subscribe pairs of consumer and peer to k."""
    for consumer, peer in members:
        await store.run(message_ops.subscribe("k", consumer, peer, OPTIONS))


async def test_silent_peers_are_disconnected_and_the_others_stay(
    aio: AsyncStore, db: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await join(aio, ("c", "p"), ("c", "q"), ("d", "r"), ("d", "q"))
    await aio.run(message_ops.push("k", [b"1"]))
    await aio.run(message_ops.dispatch("k"))
    for peer in "pr":
        db.set(f"LASTACTION_{peer}", 1)
    reaper = Reaper(aio, OPTIONS)
    await reaper.check()
    assert (db.smembers("PEERS_c"), db.smembers("PEERS_d")) == ({b"q"}, {b"q"})
    assert (reaper.peers, reaper.returned) == (2, 0)
    assert "consumer 'c': disconnected 1 silent peers, requeued 0 messages" in caplog.text
    db.set("LASTACTION_q", 1)
    await reaper.check()
    assert (reaper.peers, reaper.returned) == (4, 1)
    assert db.lrange("QUEUE_k", 0, -1) == [b"1"]


async def test_all_consumers_are_checked_a_few_at_a_time(
    aio: AsyncStore, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tambomq.gomq.server.reaper._CHUNK", 5)
    await join(aio, *((f"c{n}", "p") for n in range(12)))
    db.set("LASTACTION_p", 1)
    reaper = Reaper(aio, OPTIONS)
    await reaper.check()
    assert reaper.peers == 12


async def test_a_consumer_that_cannot_be_checked_affects_no_other(
    aio: AsyncStore, db: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    await join(aio, ("a", "p"), ("b", "p"), ("c", "p"))
    db.set("LASTACTION_p", 1)
    db.delete("PEERS_b")
    db.set("PEERS_b", "no set")
    reaper = Reaper(aio, OPTIONS)
    await reaper.check()
    assert reaper.peers == 2
    assert "silent peers of consumer 'b' are not disconnected yet" in caplog.text


async def test_an_unavailable_store_ends_a_check(private_server: Server) -> None:
    store = AsyncStore(private_server.url, patience_s=0)
    private_server.kill()
    with pytest.raises(StoreUnavailable):
        await Reaper(store, OPTIONS).check()
    await store.close()


async def test_a_service_disconnects_a_silent_peer_and_keeps_its_undelivered_messages(
    serve: Serve, db: redis.Redis
) -> None:
    service = await serve(peer_timeout_s=1.5)
    peer = Peer(service)
    await peer.subscribe("k")
    await publish(service, "k", b"1", b"2")
    await eventually_async(lambda: not db.exists("PEERS_c"), within_s=20)
    assert not db.exists(f"MESSAGES_k_c_{peer.name}")
    await eventually_async(lambda: service.stats.returned == 2, within_s=20)
    assert db.llen("QUEUE_k") == 2
    assert (service.stats.disconnected, service.stats.returned) == (1, 2)
    # Who comes back finds it.
    assert await peer.observe() == [b"1", b"2"]


async def test_a_peer_that_observes_stays(serve: Serve, db: redis.Redis) -> None:
    service = await serve(peer_timeout_s=2.0)
    alive, silent = Peer(service, "alive"), Peer(service, "silent")
    await alive.subscribe("k")
    await silent.subscribe("k")

    async def silent_is_disconnected() -> bool:
        await alive.observe()
        return service.stats.disconnected == 1

    await eventually_async(silent_is_disconnected, within_s=20)
    assert db.smembers("PEERS_c") == {b"alive"}


# ── when it checks ───────────────────────────────────────────────────────────


@pytest.fixture
def backoff_delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long a reaper with 30 s has paused; the fourth pause is the last."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 4:
            raise asyncio.CancelledError

    monkeypatch.setattr("tambomq.gomq.server.reaper.asyncio.sleep", sleep)
    return slept


async def checks(
    reaper: Reaper, monkeypatch: pytest.MonkeyPatch, *errors: TamboError | None
) -> None:
    """Run the reaper with checks that have these outcomes."""
    outcomes = iter(errors)

    async def check() -> None:
        if error := next(outcomes):
            raise error

    monkeypatch.setattr(reaper, "check", check)
    with suppress(asyncio.CancelledError):
        await reaper.run()


async def test_peers_get_a_full_timeout_after_a_server_starts(
    aio: AsyncStore, backoff_delays: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    await checks(Reaper(aio, OPTIONS), monkeypatch, None, None, None)
    assert backoff_delays == [30, 5, 5, 5]


@pytest.mark.parametrize(
    "error", [lambda: StoreUnavailable("gone"), lambda: WrongType(("SUBSCRIBED_KEYS",))]
)
async def test_peers_get_a_full_timeout_after_an_error_of_redis(
    aio: AsyncStore,
    backoff_delays: list[float],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Callable[[], TamboError],
) -> None:
    await checks(Reaper(aio, OPTIONS), monkeypatch, None, error(), None)
    assert backoff_delays == [30, 5, 30, 5]
    assert "no peer is disconnected: " in caplog.text


async def test_peers_get_a_full_timeout_after_the_clock_of_redis_was_set_forward(
    aio: AsyncStore,
    backoff_delays: list[float],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ahead = iter([0, 1, 41, 42])
    now = monotonic()
    monkeypatch.setattr(
        "tambomq.gomq.server.reaper.admin_ops.server_s",
        lambda: Call("TIME", (), (), lambda _: now + next(ahead), repeatable=True),
    )
    await checks(Reaper(aio, OPTIONS), monkeypatch, None, None)
    assert backoff_delays == [30, 5, 30, 5]
    assert "the clock of Redis was set forward" in caplog.text
