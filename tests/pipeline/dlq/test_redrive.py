"""Dead letters go back into their queue, some ahead of the others, and can be put back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import redis

from tambomq.bulk.redrives import DONE, STOPPED, UNDONE, Redrive, UndoResult
from tambomq.chasqui.ops.add import Policy
from tambomq.errors import QueueError, SettingsError
from tambomq.pipeline.address import Address
from tambomq.pipeline.dlq import redrive
from tambomq.pipeline.dlq.chasqui import ChasquiDlq
from tambomq.pipeline.dlq.queues import DeadLetterQueues
from tambomq.pipeline.dlq.redrive import RedriveOptions, RedrivePlan
from tambomq.pipeline.dlq.rsmq import RsmqDlq
from tambomq.pipeline.dlq.selection import Selection
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.store.sync import Store
from tests.pipeline.dying_letters import JOBS, add_dead_letters, dead, ids, waiting
from tests.servers import Server


@pytest.fixture
def dlq(store: Store, server: Server) -> ChasquiDlq:
    return ChasquiDlq(store, server.url, "orders", Policy())


def planned(dlq: Any, selections: list[Selection] | None = None, **fields: Any) -> RedrivePlan:
    """What `redrive.plan` makes of an order for all letters, without Spark."""
    selections = selections or [Selection(letter.id) for letter in dlq.letters()]
    started = Redrive(
        "r1",
        until=dlq.until(),
        selected=len(selections),
        dead=getattr(dlq, "dead", ""),
    )
    for name, value in fields.items():
        started = type(started)(
            **{**{f: getattr(started, f) for f in started.__struct_fields__}, name: value}
        )
    return RedrivePlan(started, selections, is_known=False)


def take(db: redis.Redis, count: int) -> list[bytes]:
    """Be a worker: read so many jobs, and keep them."""
    db.xgroup_create(JOBS.stream, "default", "0", mkstream=True)
    rows: Any = db.xreadgroup("default", "me", {JOBS.stream: ">"}, count=count)
    return [entry for entry, _ in rows[0][1]]


def test_all_letters_wait_again_in_their_order_with_all_their_attempts(
    dlq: ChasquiDlq, db: redis.Redis
) -> None:
    add_dead_letters(db, 600)
    done = redrive.run(dlq, planned(dlq), RedriveOptions())
    assert (done.moved, done.state, done.refused) == (600, DONE, 0)
    assert waiting(db) == [(f"job-{n}", {"n": n}, 0) for n in range(600)]
    assert dead(db) == []
    assert [each.moved for each in dlq.known()] == [600]


def test_attempts_are_kept_if_that_is_asked_for(dlq: ChasquiDlq, db: redis.Redis) -> None:
    add_dead_letters(db, 2)
    redrive.run(dlq, planned(dlq, attempts="keep"), RedriveOptions())
    assert [attempt for _, _, attempt in waiting(db)] == [3, 3]


def test_a_new_payload_replaces_the_old(dlq: ChasquiDlq, db: redis.Redis) -> None:
    add_dead_letters(db, 1)
    key = next(iter(dlq.letters())).id
    redrive.run(
        dlq,
        planned(dlq, [Selection(key, dlq.packed(key, '{"m": 1}'))]),
        RedriveOptions(),
    )
    assert waiting(db) == [("job-0", {"m": 1}, 0)]


@pytest.mark.parametrize("value", ["{", b"\xc1", "\ud800"])
def test_an_invalid_payload_is_refused(dlq: ChasquiDlq, value: Any) -> None:
    with pytest.raises(SettingsError, match="nothing was moved"):
        dlq.packed("1-0", value)


def test_invalid_dead_letters_stay(dlq: ChasquiDlq, db: redis.Redis) -> None:
    add_dead_letters(db, 1)
    db.xadd(JOBS.dlq, {"d": b"junk", "reason": "malformed"})
    done = redrive.run(dlq, planned(dlq), RedriveOptions())
    assert (done.moved, done.refused) == (1, 1)
    assert [fields[b"d"] for fields in dead(db)] == [b"junk"]


def test_a_letter_that_was_moved_is_not_moved_again(dlq: ChasquiDlq, db: redis.Redis) -> None:
    add_dead_letters(db, 5)
    plan = planned(dlq)
    redrive.run(dlq, plan, RedriveOptions())
    again = redrive.run(dlq, plan, RedriveOptions())
    assert (again.moved, len(waiting(db))) == (5, 5)


def test_undo_puts_back_unread_jobs_unchanged(dlq: ChasquiDlq, db: redis.Redis) -> None:
    letters_before = add_dead_letters(db, 10)
    plan = planned(dlq)
    redrive.run(dlq, plan, RedriveOptions())
    first, second, *_ = take(db, 2)
    db.xack(JOBS.stream, "default", first)
    db.xdel(JOBS.stream, first)
    assert dlq.undo(plan.redrive) == UndoResult(back=8, running=1, consumed=1)
    assert dead(db) == letters_before[2:]
    rows: Any = db.xrange(JOBS.stream)
    assert [entry for entry, _ in rows] == [second]
    assert [(each.state, each.undone) for each in dlq.known()] == [(UNDONE, 8)]


def test_undo_twice_puts_nothing_back_twice(dlq: ChasquiDlq, db: redis.Redis) -> None:
    add_dead_letters(db, 3)
    plan = planned(dlq)
    redrive.run(dlq, plan, RedriveOptions())
    dlq.undo(plan.redrive)
    assert dlq.undo(plan.redrive) == UndoResult()
    assert len(dead(db)) == 3


def test_a_redrive_that_was_undone_moves_nothing_more(dlq: ChasquiDlq, db: redis.Redis) -> None:
    add_dead_letters(db, 3)
    plan = planned(dlq)
    redrive.run(dlq, plan, RedriveOptions())
    dlq.undo(plan.redrive)
    again = [Selection(letter.id) for letter in dlq.letters()]
    with pytest.raises(QueueError, match="was undone"):
        dlq.move(plan.redrive, again)
    assert (len(dead(db)), waiting(db)) == (3, [])


def test_undoing_an_unknown_redrive_is_an_error(dlq: ChasquiDlq) -> None:
    with pytest.raises(QueueError, match="has no redrive 'nil'"):
        dlq.undo(Redrive("nil"))


def test_a_full_queue_stops_a_redrive_that_goes_on_later(
    store: Store, server: Server, db: redis.Redis
) -> None:
    add_dead_letters(db, 5)
    small = ChasquiDlq(store, server.url, "orders", Policy(max_stream_len=3))
    plan = planned(small)
    with pytest.raises(QueueError, match="3 letters were moved"):
        redrive.run(small, plan, RedriveOptions())
    assert (len(waiting(db)), len(dead(db))) == (3, 2)
    wide = ChasquiDlq(store, server.url, "orders", Policy())
    assert redrive.run(wide, plan, RedriveOptions()).moved == 5


def test_the_rest_does_not_follow_a_canary_that_failed(dlq: ChasquiDlq, db: redis.Redis) -> None:
    add_dead_letters(db, 10)
    plan = planned(dlq, canary=2)

    def work(_: int) -> None:
        for entry in take(db, 2):
            add_dead_letters(db, 1, first=int(len(dead(db)) == 9))
            db.xack(JOBS.stream, "default", entry)
            db.xdel(JOBS.stream, entry)

    done = redrive.run(dlq, plan, RedriveOptions(canary=0.2), work)
    assert (done.state, done.moved, done.outcomes) == (STOPPED, 2, {"died": 2})
    assert done.why == "2 of 2 canary messages failed again"
    assert ids(dead(db))[:8] == [f"job-{n}" for n in range(2, 10)]


def test_the_rest_follows_a_canary_that_succeeded(dlq: ChasquiDlq, db: redis.Redis) -> None:
    add_dead_letters(db, 10)

    def work(moved: int) -> None:
        if moved == 2:
            for entry in take(db, 2):
                db.xack(JOBS.stream, "default", entry)
                db.xdel(JOBS.stream, entry)

    done = redrive.run(dlq, planned(dlq, canary=2), RedriveOptions(canary=0.2), work)
    assert (done.state, done.moved, done.outcomes) == (DONE, 10, {"done": 2})


def test_the_rest_does_not_follow_a_canary_without_a_worker(
    dlq: ChasquiDlq, db: redis.Redis
) -> None:
    add_dead_letters(db, 10)
    plan, order = planned(dlq, canary=1), RedriveOptions(canary=0.1, canary_wait_s=0.1)
    done = redrive.run(dlq, plan, order)
    assert (done.state, done.moved, done.outcomes) == (STOPPED, 1, {"waiting": 1})
    assert "is a worker running?" in done.why
    # Whoever goes on without a canary has seen it.
    rest = planned(dlq, canary=1)
    assert redrive.run(dlq, rest, RedriveOptions()).moved == 10


def test_events_distinguish_retried_from_completed_jobs(dlq: ChasquiDlq, db: redis.Redis) -> None:
    add_dead_letters(db, 4)
    plan = planned(dlq, canary=4)
    dlq.begin(plan.redrive)
    dlq.move(plan.redrive, plan.selections)
    for entry in take(db, 3)[:2]:
        db.xack(JOBS.stream, "default", entry)
        db.xdel(JOBS.stream, entry)
    db.xadd(JOBS.events, {"e": "retry-scheduled", "id": "job-0", "ts": 1})
    found = dlq.outcomes(plan.redrive)
    assert found == {"retrying": 1, "done": 1, "running": 1, "waiting": 1}
    db.xadd(JOBS.events, {"e": "completed", "id": "job-0", "ts": 2})
    assert dlq.outcomes(plan.redrive)["done"] == 2


def test_expired_redrives_are_not_listed(dlq: ChasquiDlq, db: redis.Redis) -> None:
    add_dead_letters(db, 1)
    dlq.begin(planned(dlq).redrive)
    db.delete(JOBS.redrive("r1"))
    assert dlq.known() == []
    assert db.exists(JOBS.redrives) == 0


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ({"done": 10}, ""),
        ({"done": 9, "died": 1}, ""),
        ({"done": 8, "died": 1, "retrying": 1}, "2 of 10 canary messages failed again"),
        ({"done": 8, "running": 2}, "2 of 10 canary messages were not done after 60 s"),
        ({}, ""),
    ],
)
def test_a_few_that_fail_are_tolerated(outcomes: dict[str, int], said: str) -> None:
    assert redrive.reason_to_stop(Counter(outcomes), RedriveOptions()).startswith(said)
    assert bool(redrive.reason_to_stop(Counter(outcomes), RedriveOptions())) == bool(said)


# ── RSMQ ─────────────────────────────────────────────────────────────────────


@pytest.fixture
def dead_messages(rsmq: Rsmq, db: redis.Redis) -> dict[bytes, bytes]:
    """A queue and its dead letters: the hash of these as it is."""
    rsmq.create_queue("orders", maxsize=2000)
    rsmq.create_queue("orders-dead", maxsize=-1)
    for n, id in enumerate(rsmq.send_messages("orders-dead", [b"m%d" % n for n in range(6)])):
        db.hset("rsmq:orders-dead:Q", f"{id}:why", f"gave up on {n}")
    found: Any = db.hgetall("rsmq:orders-dead:Q")
    return {name: value for name, value in found.items() if len(name) >= 32}


@pytest.fixture
def rsmq_dlq(store: Store) -> RsmqDlq:
    return RsmqDlq(store, RsmqKeys(), "orders")


def test_messages_are_received_again_under_their_ids(
    rsmq_dlq: RsmqDlq, rsmq: Rsmq, dead_messages: dict[bytes, bytes]
) -> None:
    names = [letter.id for letter in rsmq_dlq.letters()]
    done = redrive.run(rsmq_dlq, planned(rsmq_dlq), RedriveOptions())
    assert (done.moved, done.state) == (6, DONE)
    got = rsmq.receive_messages("orders", 10)
    assert [(each.id, each.rc) for each in got] == [(name, 1) for name in names]
    assert rsmq.get_queue_attributes("orders-dead").msgs == 0


def test_undo_puts_messages_back_with_their_reasons(
    rsmq_dlq: RsmqDlq, rsmq: Rsmq, db: redis.Redis, dead_messages: dict[bytes, bytes]
) -> None:
    scores = db.zrange("rsmq:orders-dead", 0, -1, withscores=True)
    plan = planned(rsmq_dlq, [Selection(letter.id, b"new") for letter in rsmq_dlq.letters()])
    redrive.run(rsmq_dlq, plan, RedriveOptions())
    taken = rsmq.receive_message("orders")
    popped = rsmq.pop_message("orders")
    assert taken is not None
    assert popped is not None
    assert rsmq_dlq.undo(plan.redrive) == UndoResult(back=4, running=1, consumed=1)
    found: Any = db.hgetall("rsmq:orders-dead:Q")
    out = {taken.id.encode(), popped.id.encode()}
    left = {n: v for n, v in dead_messages.items() if n[:32] not in out}
    assert {name: value for name, value in found.items() if len(name) >= 32} == left
    assert db.zrange("rsmq:orders-dead", 0, -1, withscores=True) == scores[2:]


def test_letters_that_are_in_flight_or_too_long_stay(
    rsmq_dlq: RsmqDlq, rsmq: Rsmq, dead_messages: dict[bytes, bytes]
) -> None:
    plan = planned(rsmq_dlq)
    plan.selections[1] = Selection(plan.selections[1].key, b"x" * 2001)
    seen = rsmq.receive_message("orders-dead")
    assert seen is not None
    done = redrive.run(rsmq_dlq, plan, RedriveOptions())
    assert (done.moved, done.held, done.refused) == (4, 1, 1)
    assert rsmq.get_queue_attributes("orders-dead").msgs == 2


def test_messages_that_die_again_are_seen(
    rsmq_dlq: RsmqDlq, rsmq: Rsmq, db: redis.Redis, dead_messages: dict[bytes, bytes]
) -> None:
    plan = planned(rsmq_dlq, canary=4)
    rsmq_dlq.begin(plan.redrive)
    rsmq_dlq.move(plan.redrive, plan.selections[:4])
    assert rsmq_dlq.outcomes(plan.redrive) == {"waiting": 4}
    first, second, _ = (rsmq.receive_message("orders") for _ in range(3))
    assert first is not None
    assert second is not None
    rsmq.delete_message("orders", first.id)
    rsmq.delete_message("orders", second.id)
    db.zadd("rsmq:orders-dead", {second.id: 1})
    assert rsmq_dlq.outcomes(plan.redrive) == {"done": 1, "died": 1, "running": 1, "waiting": 1}


def test_attempts_of_messages_cannot_be_kept(
    rsmq_dlq: RsmqDlq, dead_messages: dict[bytes, bytes]
) -> None:
    with pytest.raises(SettingsError, match="does not keep the receive count"):
        redrive.plan(rsmq_dlq, lambda: None, RedriveOptions(attempts="keep"))


def test_all_dead_letter_queues_of_a_server_are_found(
    store: Store, server: Server, db: redis.Redis, dead_messages: dict[bytes, bytes]
) -> None:
    add_dead_letters(db, 1)
    found = [dlq.address for dlq in DeadLetterQueues(store, server.url).all()]
    assert found == [Address("chasqui", "orders"), Address("rsmq", "orders")]


# ── going on ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (RedriveOptions(id="r1", condition="a"), "was started with --where ''"),
        (RedriveOptions(id="r1", attempts="keep"), "was started with --attempts 'reset'"),
        (RedriveOptions(id="not an id"), "--id: "),
    ],
)
def test_a_redrive_goes_on_only_as_it_was_begun(
    dlq: ChasquiDlq, db: redis.Redis, order: RedriveOptions, said: str
) -> None:
    add_dead_letters(db, 1)
    dlq.begin(planned(dlq).redrive)
    with pytest.raises(SettingsError, match=said):
        redrive.plan(dlq, lambda: None, order)


def test_a_redrive_that_was_undone_does_not_go_on(dlq: ChasquiDlq, db: redis.Redis) -> None:
    add_dead_letters(db, 1)
    plan = planned(dlq)
    redrive.run(dlq, plan, RedriveOptions())
    dlq.undo(plan.redrive)
    with pytest.raises(SettingsError, match="start another"):
        redrive.plan(dlq, lambda: None, RedriveOptions(id="r1"))
