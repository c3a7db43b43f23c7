"""Entries in flight are renewed as long as they run, also after another worker had them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis

from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.ops.worker import Delivery
from tambomq.chasqui.worker.in_flight import EntryLease, InFlight
from tambomq.runtime.heartbeat import NoHeartbeat
from tambomq.store.endpoint import endpoint
from tests.servers import Server, eventually_async

IDLE_MS = 400
FAR_MS = 1_000_000


@pytest.fixture
def entry(db: Any, keys: Keys) -> str:
    """An entry that consumer ``us`` has."""
    db.xgroup_create(keys.stream, GROUP, "0", mkstream=True)
    added: bytes = db.xadd(keys.stream, {"d": "x"})
    db.xreadgroup(GROUP, "us", {keys.stream: ">"})
    return added.decode()


@pytest.fixture
async def in_flight(server: Server, keys: Keys) -> AsyncIterator[InFlight]:
    lease = EntryLease(endpoint(server.url), keys.queue, GROUP, "us", IDLE_MS)
    held = InFlight(lease, "thread", on_released=lambda: None)
    yield held
    held.close()


async def is_renewed(db: Any, keys: Keys, entry: str, owner: str) -> None:
    """Return when *owner*'s entry, which was said to be silent for long, is renewed."""
    db.xclaim(keys.stream, GROUP, owner, 0, [entry], idle=FAR_MS, justid=True)

    def renewed() -> bool:
        (row,) = db.xpending_range(keys.stream, GROUP, "-", "+", 1)
        return bool(row["time_since_delivered"] < FAR_MS)

    await eventually_async(renewed)


async def test_a_redelivered_entry_that_still_runs_is_renewed_and_not_run_again(
    in_flight: InFlight, entry: str, db: redis.Redis, keys: Keys
) -> None:
    first = Delivery(entry, (b"d", b"x"), 0)
    assert in_flight.add([first]) == [first]
    await is_renewed(db, keys, entry, "us")
    # Another takes it over, and a renewal finds that out.
    db.xclaim(keys.stream, GROUP, "other", 0, [entry])
    beat: Any = in_flight._heartbeat
    await eventually_async(lambda: not beat.held)
    # The other has died, and the entry is ours again.
    db.xclaim(keys.stream, GROUP, "us", 0, [entry])
    assert in_flight.add([Delivery(entry, (b"d", b"x"), 2)]) == []
    await is_renewed(db, keys, entry, "us")
    in_flight.release([entry])
    assert not beat.held


async def test_each_delivery_is_held_by_a_receipt_of_its_own(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a late reply about an older delivery does not affect the newer one."""
    renewed: list[dict[str, str]] = []

    class RecordingHeartbeat(NoHeartbeat):
        def hold(self, held: dict[str, str]) -> None:
            renewed.append(held)

    monkeypatch.setattr(
        "tambomq.chasqui.worker.in_flight.heartbeat", lambda *_: RecordingHeartbeat()
    )
    lease = EntryLease(endpoint("redis://nowhere"), keys.queue, GROUP, "us", IDLE_MS)
    in_flight = InFlight(lease, "thread", on_released=lambda: None)
    for before in range(3):
        in_flight.add([Delivery("1-1", (), before)])
    assert len({held["1-1"] for held in renewed}) == 3


def test_a_step_of_the_clock_below_two_thirds_of_a_lease_leaves_time_at_the_worst_moment() -> None:
    lease = EntryLease(endpoint("redis://nowhere"), "q", GROUP, "us", 30_000)
    assert lease.every_s + 20 < 30
