"""A redrive or undo that is killed at any point leaves each letter in exactly one place."""

from __future__ import annotations

from functools import partial

import pytest
import redis

from tambomq.bulk.redrives import Redrive
from tambomq.chasqui.ops.add import Policy
from tambomq.pipeline.dlq import redrive
from tambomq.pipeline.dlq.chasqui import ChasquiDlq
from tambomq.pipeline.dlq.redrive import RedriveOptions, RedrivePlan
from tambomq.pipeline.dlq.rsmq import RsmqDlq
from tambomq.pipeline.dlq.selection import Selection
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.store.sync import Store
from tests.pipeline.dying import dies_after
from tests.pipeline.dying_letters import add_dead_letters, dead, ids, waiting
from tests.servers import Server

COUNT = 600
"""Three scripts' worth."""
MAX_ROUND_TRIPS = 40


def plan(dlq: ChasquiDlq | RsmqDlq) -> RedrivePlan:
    """What an order for all letters comes to, asked again under the same id."""
    selections = [Selection(letter.id) for letter in dlq.letters()]
    started = Redrive("r", until=dlq.until(), selected=COUNT, dead=getattr(dlq, "dead", ""))
    return RedrivePlan(started, selections, is_known=False)


@pytest.mark.slow
def test_after_a_kill_each_job_is_either_dead_or_waiting(
    store: Store, server: Server, db: redis.Redis
) -> None:
    everyone = [f"job-{n}" for n in range(COUNT)]
    for round_trips in range(MAX_ROUND_TRIPS):
        db.flushall()
        letters_before = add_dead_letters(db, COUNT)
        dlq = ChasquiDlq(store, server.url, "orders", Policy())
        first = plan(dlq)
        killed = dies_after(round_trips, partial(redrive.run, dlq, first, RedriveOptions()))
        assert [id for id, _, _ in waiting(db)] + ids(dead(db)) == everyone, round_trips
        again = redrive.run(dlq, plan(dlq), RedriveOptions())
        assert ([id for id, _, _ in waiting(db)], again.moved) == (everyone, COUNT), round_trips
        dies_after(round_trips, partial(dlq.undo, first.redrive))
        assert sorted([id for id, _, _ in waiting(db)] + ids(dead(db))) == sorted(everyone), (
            round_trips
        )
        dlq.undo(first.redrive)
        assert sorted(dead(db), key=str) == sorted(letters_before, key=str), round_trips
        if not killed:
            assert round_trips > 5
            return
    pytest.fail("it took more round trips than were tried")


@pytest.mark.slow
def test_after_a_kill_each_message_is_either_dead_or_waiting(
    store: Store, server: Server, rsmq: Rsmq, db: redis.Redis
) -> None:
    for round_trips in range(MAX_ROUND_TRIPS):
        db.flushall()
        rsmq.create_queue("q")
        rsmq.create_queue("q-dead", maxsize=-1)
        sent = rsmq.send_messages("q-dead", [b"m%d" % n for n in range(COUNT)])
        dlq = RsmqDlq(store, RsmqKeys(), "q")
        first = plan(dlq)
        killed = dies_after(round_trips, partial(redrive.run, dlq, first, RedriveOptions()))
        assert _held(rsmq, "q") + _held(rsmq, "q-dead") == sent, round_trips
        redrive.run(dlq, plan(dlq), RedriveOptions())
        assert (_held(rsmq, "q"), _held(rsmq, "q-dead")) == (sent, []), round_trips
        dies_after(round_trips, partial(dlq.undo, first.redrive))
        assert sorted(_held(rsmq, "q") + _held(rsmq, "q-dead")) == sorted(sent), round_trips
        dlq.undo(first.redrive)
        assert (_held(rsmq, "q"), _held(rsmq, "q-dead")) == ([], sent), round_trips
        if not killed:
            assert round_trips > 5
            return
    pytest.fail("it took more round trips than were tried")


def _held(rsmq: Rsmq, queue: str) -> list[str]:
    return [each.id for each in rsmq.peek_messages(queue, COUNT + 1)]
