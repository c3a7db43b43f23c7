"""While an alarm is raised GOMQ refuses to publish, and consumers go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tambomq.alarms.model import Alarm
from tambomq.alarms.ops import raise_alarms
from tambomq.errors import AlarmRaised
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.server.auth import Caller
from tambomq.gomq.server.service import Service
from tambomq.store.sync import Store
from tests.gomq.conftest import Peer, Serve, publish
from tests.servers import eventually_async

MEMORY = Alarm("memory", "", 95.0, 90.0, 80.0)
LENGTH = Alarm("queue_length", "gomq:long", 95.0, 90.0, 80.0)
CALLER = Caller("1.2.3.4:5")


def publish_many(service: Service, *keys: str) -> Any:
    records = [pb.PublishRecord(key=key, payload=b"x") for key in keys]
    return service.publish_many(pb.PublishRecords(records=records), CALLER)


async def until(condition: Callable[[], bool]) -> None:
    await eventually_async(condition, within_s=20)


async def test_publishes_are_refused_and_consumers_go_on_until_it_is_cleared(
    serve: Serve, store: Store
) -> None:
    service = await serve()
    peer, late = Peer(service), Peer(service, "other", "late")
    await peer.subscribe("k")
    await publish(service, "k", b"1")
    store.run(raise_alarms("a", (MEMORY,), 60_000))
    await until(lambda: _is_refused(service))
    with pytest.raises(AlarmRaised, match="memory has 95 B in use"):
        await publish(service, "k", b"2")
    with pytest.raises(AlarmRaised):
        await publish_many(service, "k", "other")
    assert service.stats.refused == 3
    assert await peer.observe() == [b"1"]
    await late.subscribe("k")
    await late.unsubscribe("k")
    store.run(raise_alarms("a", (), 60_000))
    await until(lambda: not _is_refused(service))
    await publish(service, "k", b"3")
    assert await peer.observe() == [b"3"]


async def test_a_long_queue_refuses_its_own_messages_alone(serve: Serve, store: Store) -> None:
    store.run(raise_alarms("a", (LENGTH,), 60_000))
    service = await serve()
    await publish(service, "short", b"1")
    with pytest.raises(AlarmRaised, match="queue gomq:long has 95 messages"):
        await publish(service, "long", b"1")
    with pytest.raises(AlarmRaised):
        await publish_many(service, "short", "long")
    await publish_many(service, "short")
    # All or nothing: both messages of the refused call count.
    assert service.stats.refused == 3


async def test_a_service_that_starts_during_an_alarm_refuses_at_once(
    serve: Serve, store: Store
) -> None:
    store.run(raise_alarms("a", (MEMORY,), 60_000))
    service = await serve()
    with pytest.raises(AlarmRaised):
        await publish(service, "k", b"1")


def _is_refused(service: Service) -> bool:
    return bool(service._watch.alarms)
