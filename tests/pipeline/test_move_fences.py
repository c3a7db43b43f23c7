"""A move or a replay that is gone on with after any time brings each message once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import pytest
import redis

from tambomq.bulk.moves import KEEP_S, MAX_MESSAGES, Tally
from tambomq.errors import QueueError
from tambomq.pipeline.address import address
from tambomq.pipeline.transfer import migrate as migrating
from tambomq.pipeline.transfer.endpoints import QueueEndpoint
from tambomq.pipeline.transfer.migrate import QueueLocation, endpoint_of, migrate, move_name
from tambomq.pipeline.transfer.replay import replay
from tambomq.rsmq import Rsmq
from tambomq.store.sync import Store
from tests.pipeline.dying import dies_after
from tests.pipeline.transfer.test_migrate import Queues
from tests.pipeline.transfer.test_replay import record
from tests.servers import Server

PROTOCOLS = ("rsmq", "chasqui", "gomq")
BODIES = [f"body {n}" for n in range(5)]
A_WEEK_AND_MORE = KEEP_S + 1


@pytest.fixture
def queues(server: Server, db: redis.Redis) -> Queues:
    return Queues(server.url, db)


@pytest.fixture
def end(server: Server) -> Iterator[Callable[[str], QueueEndpoint]]:
    """A queue by its address, on a connection of its own, so that a kill affects no other."""
    stores: list[Store] = []

    def opened(name: str) -> QueueEndpoint:
        stores.append(Store(server.url))
        return endpoint_of(stores[-1], QueueLocation(address(name), server.url))

    yield opened
    for store in stores:
        store.close()


@pytest.fixture
def go(
    end: Callable[[str], QueueEndpoint], server: Server
) -> Callable[..., migrating.MigrationReport]:
    def run(source: str, target: str, **options: Any) -> migrating.MigrationReport:
        name = move_name(*(QueueLocation(address(each), server.url) for each in (source, target)))
        return migrate(end(source), end(target), name, wait_s=0.0, **options)

    return run


def pass_time(db: redis.Redis, seconds: int) -> None:
    """Expire all keys that would have expired by then."""
    for key in db.scan_iter():
        if 0 <= int(str(db.ttl(key))) <= seconds:
            db.delete(key)


@pytest.mark.parametrize(("source", "target"), [*product(PROTOCOLS, PROTOCOLS)])
def test_a_move_that_was_killed_goes_on_after_more_than_a_week(
    queues: Queues, go: Callable[..., migrating.MigrationReport], source: str, target: str
) -> None:
    for round_trips in range(1, 60):
        queues.db.flushall()
        queues.fill(source, "a", BODIES)
        killed = dies_after(round_trips, lambda: go(f"{source}:a", f"{target}:b"))
        pass_time(queues.db, A_WEEK_AND_MORE)
        report = go(f"{source}:a", f"{target}:b")
        assert queues.waiting(target, "b") == BODIES, round_trips
        assert report.departed == report.arrived
        assert report.departed.count in (0, len(BODIES))
        if not killed:
            return
    pytest.fail("it took more round trips than were tried")


@pytest.mark.parametrize("target", PROTOCOLS)
def test_the_record_of_a_finished_move_expires_in_a_week(
    queues: Queues, go: Callable[..., migrating.MigrationReport], target: str
) -> None:
    queues.fill("rsmq", "a", BODIES)
    go("rsmq:a", f"{target}:b")
    (fence,) = (key for key in queues.db.scan_iter() if b"fence" in key.lower())
    assert 0 < int(str(queues.db.ttl(fence))) <= KEEP_S
    pass_time(queues.db, A_WEEK_AND_MORE)
    queues.fill("chasqui", "a", ["more"])
    go("chasqui:a", f"{target}:b")
    assert queues.waiting(target, "b") == [*BODIES, "more"]


def test_a_move_that_another_has_ended_meanwhile_loses_nothing(
    queues: Queues, go: Callable[..., migrating.MigrationReport]
) -> None:
    """Two run the same command; one ends the move while the other waits for messages in hand."""
    queues.fill("rsmq", "a", BODIES)
    more, seen = [f"more {n}" for n in range(3)], list[int]()

    def other(_: int) -> None:
        if not seen:
            seen.append(go("rsmq:a", "rsmq:b").moved)
            with Rsmq(queues.url) as rsmq:
                rsmq.send_messages("a", more)

    report = go("rsmq:a", "rsmq:b", tick=other)
    assert seen == [0]
    assert queues.waiting("rsmq", "b") == [*BODIES, *more]
    assert report.departed == report.arrived
    assert report.departed.count == len(more)


def test_a_target_that_was_emptied_is_noticed_before_more_goes_there(
    queues: Queues, go: Callable[..., migrating.MigrationReport]
) -> None:
    bodies = [f"{n}" for n in range(MAX_MESSAGES + 3)]
    queues.fill("rsmq", "a", bodies)

    def empty(_: int) -> None:
        queues.db.delete(*queues.db.scan_iter("FENCE_*"))

    with pytest.raises(
        QueueError, match=r"has no record of earlier batches .* 3 messages are in transit"
    ):
        go("rsmq:a", "gomq:b", tick=empty)
    assert queues.waiting("gomq", "b") == bodies[:MAX_MESSAGES]


@pytest.mark.parametrize("target", PROTOCOLS)
def test_a_replay_that_was_killed_goes_on_after_more_than_a_week(
    queues: Queues, end: Callable[[str], QueueEndpoint], target: str
) -> None:
    rows = [record(n, at_ms=1000 + 200 * n) for n in range(3)]

    def interrupted() -> Iterator[Any]:
        # At this speed the first is sent before it is waited for the second.
        yield from rows[:2]
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        replay(interrupted(), end(f"{target}:b"), "r", speed=1.0)
    pass_time(queues.db, A_WEEK_AND_MORE)
    done = replay(rows, end(f"{target}:b"), "r")
    assert (done.before, done.sent) == (1, 2)
    assert len(queues.waiting(target, "b")) == len(rows)
    pass_time(queues.db, A_WEEK_AND_MORE)
    assert end(f"{target}:b").arrivals("replay-r").tally == Tally()
