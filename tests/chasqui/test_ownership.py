"""A consumer that has lost a job changes nothing, with every script that settles or renews one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import redis

from tambomq.chasqui.decisions import DeadLettered
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.group_position import last_delivered
from tambomq.chasqui.ops.worker import ConsumerContext, HandlerRun
from tambomq.store.call import Call
from tambomq.store.sync import Store
from tests.rsmq.stored import at_rest

GROUP = "default"
LOST: dict[str, tuple[Callable[[ConsumerContext, str], Call[Any]], Callable[[str], Any]]] = {
    "settle": (
        lambda context, entry: worker_ops.settle(context, 1, [], [entry, "job", "mail", 1, 9]),
        lambda entry: [entry],
    ),
    "done": (
        lambda context, entry: worker_ops.done(
            context, HandlerRun(entry, "job", "mail", 1, 9), b"\xc3", 60, 1
        ),
        lambda _: False,
    ),
    "retry": (
        lambda context, entry: worker_ops.retry(
            context, HandlerRun(entry, "job", "mail", 1, 9), b"body", 5, "why", "page", 1
        ),
        lambda _: False,
    ),
    "bury": (
        lambda context, entry: worker_ops.bury(
            context, entry, DeadLettered("unrecoverable", b"body"), 9, 1, 9
        ),
        lambda _: False,
    ),
    "renew": (lambda context, entry: worker_ops.renew(context, [entry]), lambda entry: [entry]),
    "give_back": (
        lambda context, entry: worker_ops.give_back(context, [(entry, 1)], 1000),
        lambda _: 0,
    ),
}
"""By verb: the call of a consumer, and the reply to one that does not hold the entry."""


@pytest.fixture
def entry(db: redis.Redis, keys: Keys) -> str:
    """A job that one consumer has let lie and another has claimed."""
    entry = cast("bytes", db.xadd(keys.stream, {"d": "body"}))
    db.xgroup_create(keys.stream, GROUP, "0")
    db.xreadgroup(GROUP, "stale", {keys.stream: ">"})
    db.xclaim(keys.stream, GROUP, "owner", 0, [entry])
    return entry.decode()


def context(keys: Keys, consumer: str) -> ConsumerContext:
    return ConsumerContext(keys, GROUP, consumer, events_cap=100)


@pytest.mark.parametrize("verb", LOST)
def test_a_consumer_that_lost_a_job_changes_nothing(
    verb: str, entry: str, store: Store, db: redis.Redis, keys: Keys
) -> None:
    call, lost = LOST[verb]
    before = at_rest(db)
    assert store.run(call(context(keys, "stale"), entry)) == lost(entry)
    assert at_rest(db) == before
    (held,) = cast("list[Any]", db.xpending_range(keys.stream, GROUP, "-", "+", 9))
    assert held["consumer"] == b"owner"


@pytest.mark.parametrize("verb", LOST)
def test_the_consumer_that_holds_the_job_succeeds(
    verb: str, entry: str, store: Store, keys: Keys
) -> None:
    call, lost = LOST[verb]
    assert store.run(call(context(keys, "owner"), entry)) != lost(entry)


@pytest.mark.parametrize("verb", ["settle", "done", "retry", "bury"])
def test_a_repeated_settling_call_changes_nothing(
    verb: str, entry: str, store: Store, db: redis.Redis, keys: Keys
) -> None:
    call, lost = LOST[verb]
    store.run(call(context(keys, "owner"), entry))
    before = at_rest(db)
    assert store.run(call(context(keys, "owner"), entry)) == lost(entry)
    assert at_rest(db) == before


def test_a_dead_letter_that_cannot_be_written_leaves_the_job_where_it_is(
    entry: str, store: Store, db: redis.Redis, keys: Keys
) -> None:
    db.set(keys.dlq, "not a stream")
    call, _ = LOST["bury"]
    with pytest.raises(Exception, match="type"):
        store.run(call(context(keys, "owner"), entry))
    assert db.xlen(keys.stream) == 1
    (held,) = cast("list[Any]", db.xpending_range(keys.stream, GROUP, "-", "+", 9))
    assert held["consumer"] == b"owner"


# ── after a failover that lost the last deliveries ───────────────────────────

ENDS = ("settle", "done", "retry", "bury")


@pytest.fixture
def undelivered(entry: str, db: redis.Redis, keys: Keys) -> str:
    """The job again, as a replica has it that was promoted without its deliveries."""
    for consumer in ("stale", "owner"):
        db.xgroup_delconsumer(keys.stream, GROUP, consumer)
    db.xgroup_setid(keys.stream, GROUP, "0")
    return entry


@pytest.mark.parametrize("verb", ENDS)
def test_a_job_that_is_undelivered_since_a_failover_is_ended_by_the_one_that_ran_it(
    verb: str, undelivered: str, store: Store, db: redis.Redis, keys: Keys
) -> None:
    call, lost = LOST[verb]
    assert store.run(call(context(keys, "owner"), undelivered)) != lost(undelivered)
    assert db.xlen(keys.stream) == 0
    assert store.run(call(context(keys, "stale"), undelivered)) == lost(undelivered)


@pytest.mark.parametrize("verb", LOST)
def test_a_job_that_another_has_received_since_is_left_alone(
    verb: str, undelivered: str, store: Store, db: redis.Redis, keys: Keys
) -> None:
    db.xreadgroup(GROUP, "next", {keys.stream: ">"})
    call, lost = LOST[verb]
    before = at_rest(db)
    assert store.run(call(context(keys, "owner"), undelivered)) == lost(undelivered)
    assert at_rest(db) == before


@pytest.mark.parametrize("verb", ENDS)
def test_a_job_that_the_failover_lost_is_not_ended(
    verb: str, undelivered: str, store: Store, db: redis.Redis, keys: Keys
) -> None:
    db.xdel(keys.stream, undelivered)
    call, lost = LOST[verb]
    before = at_rest(db)
    assert store.run(call(context(keys, "owner"), undelivered)) == lost(undelivered)
    assert at_rest(db) == before


def test_the_group_says_how_far_it_has_delivered(
    entry: str, store: Store, db: redis.Redis, keys: Keys
) -> None:
    ask = last_delivered(context(keys, "owner"))
    assert store.run(ask) == entry
    db.xgroup_destroy(keys.stream, GROUP)
    assert store.run(ask) is None
