"""Whoever redrives, or puts back, is killed anywhere: each letter is in exactly one place."""

from __future__ import annotations

from functools import partial

import pytest
import redis

from tambomq.chasqui.ops import Policy
from tambomq.pipeline import redrive
from tambomq.pipeline.grave_chasqui import ChasquiGrave
from tambomq.pipeline.grave_rsmq import RsmqGrave
from tambomq.pipeline.picks import Pick
from tambomq.pipeline.redrive import Order, Planned
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.store.redrives import Redrive
from tambomq.store.sync import Store
from tests.pipeline.dying import dies_after
from tests.pipeline.dying_letters import bury, dead, ids, waiting
from tests.servers import Server

COUNT = 600
"""Three scripts' worth."""
MOST_TRIPS = 40


def plan(grave: ChasquiGrave | RsmqGrave) -> Planned:
    """What an order for all letters comes to, asked again under the same id."""
    picks = [Pick(letter.id) for letter in grave.letters()]
    told = Redrive("r", until=grave.until(), selected=COUNT, dead=getattr(grave, "dead", ""))
    return Planned(told, picks, is_known=False)


@pytest.mark.slow
def test_jobs_are_dead_or_wait_whoever_is_killed(
    store: Store, server: Server, db: redis.Redis
) -> None:
    everyone = [f"job-{n}" for n in range(COUNT)]
    for trips in range(MOST_TRIPS):
        db.flushall()
        buried = bury(db, COUNT)
        grave = ChasquiGrave(store, server.url, "orders", Policy())
        first = plan(grave)
        killed = dies_after(trips, partial(redrive.run, grave, first, Order()))
        assert [id for id, _, _ in waiting(db)] + ids(dead(db)) == everyone, trips
        again = redrive.run(grave, plan(grave), Order())
        assert ([id for id, _, _ in waiting(db)], again.moved) == (everyone, COUNT), trips
        dies_after(trips, partial(grave.undo, first.told))
        assert sorted([id for id, _, _ in waiting(db)] + ids(dead(db))) == sorted(everyone), trips
        grave.undo(first.told)
        assert sorted(dead(db), key=str) == sorted(buried, key=str), trips
        if not killed:
            assert trips > 5
            return
    pytest.fail("it takes more trips than are tried")


@pytest.mark.slow
def test_messages_are_dead_or_wait_whoever_is_killed(
    store: Store, server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    for trips in range(MOST_TRIPS):
        db.flushall()
        rsmq.create_queue("q")
        rsmq.create_queue("q-dead", maxsize=-1)
        sent = rsmq.send_messages("q-dead", [b"m%d" % n for n in range(COUNT)])
        grave = RsmqGrave(store, RsmqKeys(), "q")
        first = plan(grave)
        killed = dies_after(trips, partial(redrive.run, grave, first, Order()))
        assert _held(rsmq, "q") + _held(rsmq, "q-dead") == sent, trips
        redrive.run(grave, plan(grave), Order())
        assert (_held(rsmq, "q"), _held(rsmq, "q-dead")) == (sent, []), trips
        dies_after(trips, partial(grave.undo, first.told))
        assert sorted(_held(rsmq, "q") + _held(rsmq, "q-dead")) == sorted(sent), trips
        grave.undo(first.told)
        assert (_held(rsmq, "q"), _held(rsmq, "q-dead")) == ([], sent), trips
        if not killed:
            assert trips > 5
            return
    pytest.fail("it takes more trips than are tried")


def _held(rsmq: Rsmq, queue: str) -> list[str]:
    return [each.id for each in rsmq.peek_messages(queue, COUNT + 1)]
