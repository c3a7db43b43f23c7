"""Queues of GOMQ are bounded: Publish is refused, nothing is dropped, and it goes on afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import redis

from tambomq.errors import LimitReached
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq import keys
from tambomq.gomq.server.auth import Caller
from tambomq.gomq.server.service import Service
from tests.gomq.conftest import Peer, Serve, publish
from tests.servers import eventually_async

MAX_BACKLOG = 20


async def publish_until_refused(
    service: Service, key: str, reader: Peer | None = None
) -> tuple[list[bytes], list[bytes]]:
    """Publish one after the other; what was accepted, and what *reader* observed meanwhile."""
    accepted: list[bytes] = []
    observed: list[bytes] = []
    for n in range(100 * MAX_BACKLOG):
        try:
            await publish(service, key, b"%d" % n)
        except LimitReached:
            return accepted, observed
        accepted.append(b"%d" % n)
        observed += await reader.observe() if reader else ()
    pytest.fail("it was never refused")


async def observe_all(peer: Peer, wanted: Sequence[bytes]) -> list[bytes]:
    found: list[bytes] = []

    async def all_came() -> bool:
        found.extend(await peer.observe())
        return len(found) >= len(wanted)

    await eventually_async(all_came)
    return found


async def test_the_backlog_of_a_key_without_receivers_is_bounded(
    serve: Serve, db: redis.Redis
) -> None:
    service = await serve(max_backlog=MAX_BACKLOG)
    accepted, _ = await publish_until_refused(service, "k")
    assert len(accepted) == db.llen(keys.queue("k")) == MAX_BACKLOG
    with pytest.raises(LimitReached, match=f"key 'k' has {MAX_BACKLOG} waiting messages"):
        await publish(service, "k", b"one more")
    await publish(service, "other", b"x")
    peer = Peer(service)
    await peer.subscribe("k")
    assert await observe_all(peer, accepted) == accepted
    await publish(service, "k", b"last")
    assert await observe_all(peer, [b"last"]) == [b"last"]


async def test_another_server_refuses_too(serve: Serve, db: redis.Redis) -> None:
    one, two = await serve(max_backlog=MAX_BACKLOG), await serve(max_backlog=MAX_BACKLOG)
    first, _ = await publish_until_refused(one, "k")
    second, _ = await publish_until_refused(two, "k")
    # A server learns it from what it has stored itself.
    assert len(first) + len(second) == db.llen(keys.queue("k")) <= MAX_BACKLOG + 1


async def test_of_many_records_all_or_none_are_taken(serve: Serve, db: redis.Redis) -> None:
    service = await serve(max_backlog=MAX_BACKLOG)
    await publish_until_refused(service, "k")
    records = [pb.PublishRecord(key=key, payload=b"x") for key in ("fine", "k")]
    with pytest.raises(LimitReached):
        await service.publish_many(pb.PublishRecords(records=records), Caller("1.2.3.4:5"))
    assert not db.exists(keys.queue("fine"))


async def test_publishers_of_one_turn_are_refused_together(serve: Serve, db: redis.Redis) -> None:
    service = await serve(max_backlog=MAX_BACKLOG)
    await publish_until_refused(service, "k")
    calls = [publish(service, "k", b"x") for _ in range(50)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in outcomes} == {LimitReached}
    assert db.llen(keys.queue("k")) == MAX_BACKLOG


async def test_a_slow_peer_holds_up_its_key_until_it_has_caught_up(
    serve: Serve, db: redis.Redis
) -> None:
    service = await serve(max_backlog=MAX_BACKLOG)
    slow, quick = Peer(service, "a:1", "a"), Peer(service, "b:1", "b")
    for peer in (slow, quick):
        await peer.subscribe("k")
    accepted, got = await publish_until_refused(service, "k", quick)
    waiting = db.llen(keys.lists("k") + "a_a:1")
    assert (waiting, db.llen(keys.queue("k"))) == (MAX_BACKLOG, MAX_BACKLOG)
    assert await observe_all(slow, accepted) == accepted
    got += await observe_all(quick, accepted[len(got) :])
    assert got == accepted
    await publish(service, "k", b"last")
    assert await observe_all(slow, [b"last"]) == [b"last"]


async def test_a_slow_peer_that_leaves_delays_no_other(serve: Serve) -> None:
    service = await serve(max_backlog=MAX_BACKLOG)
    slow, quick = Peer(service, "a:1", "a"), Peer(service, "b:1", "b")
    for peer in (slow, quick):
        await peer.subscribe("k")
    sent = [b"%d" % n for n in range(MAX_BACKLOG + 5)]
    await publish(service, "k", *sent)
    got = await quick.observe()
    assert got == sent[:MAX_BACKLOG]
    await slow.unsubscribe("k")
    assert got + await observe_all(quick, sent[MAX_BACKLOG:]) == sent
