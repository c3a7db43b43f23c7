"""The jobs of a consumer that is known to be dead are given back before its lease has run out."""

from __future__ import annotations

from typing import Any, cast

import pytest
import redis

from tambomq.chasqui.keys import RETURNED, Keys
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.admin import CHUNK, release_dead
from tambomq.chasqui.ops.worker import ConsumerContext
from tambomq.store.features import Features
from tambomq.store.sync import Store
from tests.chasqui import working
from tests.rsmq.stored import at_rest

server = working.server

GROUP, LEASE_MS = "default", 3_600_000


@pytest.fixture
def entries(db: redis.Redis, keys: Keys) -> list[str]:
    """Four jobs: two of the dead consumer, of which the second was redelivered, two of others."""
    db.xgroup_create(keys.stream, GROUP, "0", mkstream=True)
    added = [cast("bytes", db.xadd(keys.stream, {"d": f"{n}"})).decode() for n in range(4)]
    for consumer, count in (("dead", 2), ("live", 1), ("dead", 1)):
        db.xreadgroup(GROUP, consumer, {keys.stream: ">"}, count=count)
    db.xclaim(keys.stream, GROUP, "dead", 0, [added[1]])
    db.xclaim(keys.stream, GROUP, "successor", 0, [added[3]])
    return added


def context(keys: Keys, consumer: str) -> ConsumerContext:
    return ConsumerContext(keys, GROUP, consumer, Features())


def owners(db: redis.Redis, keys: Keys) -> dict[str, tuple[str, int]]:
    rows = cast("list[Any]", db.xpending_range(keys.stream, GROUP, "-", "+", 10))
    return {
        each["message_id"].decode(): (each["consumer"].decode(), each["times_delivered"])
        for each in rows
    }


def test_only_what_was_delivered_once_to_the_dead_is_given_back(
    entries: list[str], store: Store, db: redis.Redis, keys: Keys
) -> None:
    assert store.follow(release_dead(context(keys, "dead"), LEASE_MS)) == 1
    assert owners(db, keys) == {
        entries[0]: (RETURNED, 1),
        entries[1]: ("dead", 2),
        entries[2]: ("live", 1),
        entries[3]: ("successor", 2),
    }


def test_another_consumer_has_it_at_once_and_the_delivery_counts(
    entries: list[str], store: Store, keys: Keys
) -> None:
    store.follow(release_dead(context(keys, "dead"), LEASE_MS))
    claimed = store.run(worker_ops.claim(context(keys, "next"), 10, LEASE_MS))
    assert [(each.entry, each.deliveries) for each in claimed] == [(entries[0], 1)]
    # It is the next one's own now: a second release of the dead consumer changes nothing.
    assert store.follow(release_dead(context(keys, "dead"), LEASE_MS)) == 0
    assert store.run(worker_ops.claim(context(keys, "late"), 10, LEASE_MS)) == []


def test_without_a_release_it_waits_for_the_end_of_the_lease(
    entries: list[str], store: Store, keys: Keys
) -> None:
    assert len(entries) == 4
    assert store.run(worker_ops.claim(context(keys, "next"), 10, LEASE_MS)) == []


def test_a_consumer_without_jobs_leaves_its_group(
    store: Store, db: redis.Redis, keys: Keys
) -> None:
    db.xgroup_create(keys.stream, GROUP, "0", mkstream=True)
    db.xadd(keys.stream, {"d": "x"})
    db.xreadgroup(GROUP, "dead", {keys.stream: ">"})
    assert store.follow(release_dead(context(keys, "dead"), LEASE_MS)) == 1
    names = {each["name"] for each in cast("list[Any]", db.xinfo_consumers(keys.stream, GROUP))}
    assert names == {RETURNED.encode()}


def test_more_than_one_script_may_take_are_given_back(
    store: Store, db: redis.Redis, keys: Keys
) -> None:
    db.xgroup_create(keys.stream, GROUP, "0", mkstream=True)
    with db.pipeline() as pipe:
        for n in range(CHUNK + 7):
            pipe.xadd(keys.stream, {"d": f"{n}"})
        pipe.xreadgroup(GROUP, "dead", {keys.stream: ">"})
        pipe.execute()
    assert store.follow(release_dead(context(keys, "dead"), LEASE_MS)) == CHUNK + 7


def test_an_unknown_consumer_changes_nothing(
    entries: list[str], store: Store, db: redis.Redis, keys: Keys
) -> None:
    before = owners(db, keys), at_rest(db)
    assert store.follow(release_dead(context(keys, "stranger"), LEASE_MS)) == 0
    assert (owners(db, keys), at_rest(db)) == before
    assert len(entries) == 4
