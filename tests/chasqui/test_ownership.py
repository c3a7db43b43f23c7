"""A consumer that has lost a job changes nothing, with every script that settles or renews one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import redis

from tambomq.chasqui.decisions import DeadLettered
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import worker as worker_ops
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
def test_the_consumer_that_holds_it_succeeds(
    verb: str, entry: str, store: Store, keys: Keys
) -> None:
    call, lost = LOST[verb]
    assert store.run(call(context(keys, "owner"), entry)) != lost(entry)


@pytest.mark.parametrize("verb", ["settle", "done", "retry", "bury"])
def test_what_ends_a_job_ends_it_once(
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
