"""Queues of GOMQ are bounded: Publish is refused, nothing is dropped, and it goes on afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import redis

from tambomq.errors import LimitReached
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq import keys
from tambomq.gomq.caller import Caller
from tambomq.gomq.service import Service
from tests.gomq.conftest import Peer, Serve, publish
from tests.servers import eventually_async

MOST = 20


async def publish_until_refused(
    service: Service, key: str, reader: Peer | None = None
) -> tuple[list[bytes], list[bytes]]:
    """Publish one after the other; what was accepted, and what *reader* observed meanwhile."""
    accepted: list[bytes] = []
    observed: list[bytes] = []
    for n in range(100 * MOST):
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


async def test_a_key_that_nobody_receives_takes_so_many_messages(
    serve: Serve, db: redis.Redis
) -> None:
    service = await serve(max_backlog=MOST)
    accepted, _ = await publish_until_refused(service, "k")
    assert len(accepted) == db.llen(keys.queue("k")) == MOST
    with pytest.raises(LimitReached, match=f"key 'k' has {MOST} waiting messages"):
        await publish(service, "k", b"one more")
    await publish(service, "other", b"x")
    peer = Peer(service)
    await peer.subscribe("k")
    assert await observe_all(peer, accepted) == accepted
    await publish(service, "k", b"last")
    assert await observe_all(peer, [b"last"]) == [b"last"]


async def test_another_server_refuses_too(serve: Serve, db: redis.Redis) -> None:
    one, two = await serve(max_backlog=MOST), await serve(max_backlog=MOST)
    first, _ = await publish_until_refused(one, "k")
    second, _ = await publish_until_refused(two, "k")
    # A server learns it from what it has stored itself.
    assert len(first) + len(second) == db.llen(keys.queue("k")) <= MOST + 1


async def test_of_many_records_all_or_none_are_taken(serve: Serve, db: redis.Redis) -> None:
    service = await serve(max_backlog=MOST)
    await publish_until_refused(service, "k")
    records = [pb.PublishRecord(key=key, payload=b"x") for key in ("fine", "k")]
    with pytest.raises(LimitReached):
        await service.publish_many(pb.PublishRecords(records=records), Caller("1.2.3.4:5"))
    assert not db.exists(keys.queue("fine"))


async def test_publishers_of_one_turn_are_refused_together(serve: Serve, db: redis.Redis) -> None:
    service = await serve(max_backlog=MOST)
    await publish_until_refused(service, "k")
    calls = [publish(service, "k", b"x") for _ in range(50)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in outcomes} == {LimitReached}
    assert db.llen(keys.queue("k")) == MOST


async def test_a_slow_peer_holds_up_its_key_until_it_has_caught_up(
    serve: Serve, db: redis.Redis
) -> None:
    service = await serve(max_backlog=MOST)
    slow, quick = Peer(service, "a:1", "a"), Peer(service, "b:1", "b")
    for peer in (slow, quick):
        await peer.subscribe("k")
    accepted, got = await publish_until_refused(service, "k", quick)
    waiting = db.llen(keys.lists("k") + "a_a:1")
    assert (waiting, db.llen(keys.queue("k"))) == (MOST, MOST)
    assert await observe_all(slow, accepted) == accepted
    got += await observe_all(quick, accepted[len(got) :])
    assert got == accepted
    await publish(service, "k", b"last")
    assert await observe_all(slow, [b"last"]) == [b"last"]


async def test_a_slow_peer_that_leaves_holds_up_nobody(serve: Serve) -> None:
    service = await serve(max_backlog=MOST)
    slow, quick = Peer(service, "a:1", "a"), Peer(service, "b:1", "b")
    for peer in (slow, quick):
        await peer.subscribe("k")
    sent = [b"%d" % n for n in range(MOST + 5)]
    await publish(service, "k", *sent)
    got = await quick.observe()
    assert got == sent[:MOST]
    await slow.unsubscribe("k")
    assert got + await observe_all(quick, sent[MOST:]) == sent
