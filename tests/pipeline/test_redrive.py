"""Dead letters go back into their queue, some ahead of the others, and can be put back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import redis

from tambomq.chasqui.ops import Policy
from tambomq.errors import QueueError, SettingsError
from tambomq.pipeline import redrive
from tambomq.pipeline.address import Address
from tambomq.pipeline.grave_chasqui import ChasquiGrave
from tambomq.pipeline.grave_rsmq import RsmqGrave
from tambomq.pipeline.graves import Yard
from tambomq.pipeline.picks import Pick
from tambomq.pipeline.redrive import Order, Planned
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.store.redrives import DONE, STOPPED, UNDONE, Redrive, Undone
from tambomq.store.sync import Store
from tests.pipeline.dying_letters import JOBS, bury, dead, ids, waiting
from tests.servers import Server


@pytest.fixture
def grave(store: Store, server: Server) -> ChasquiGrave:
    return ChasquiGrave(store, server.url, "orders", Policy())


def planned(grave: Any, picks: list[Pick] | None = None, **fields: Any) -> Planned:
    """What `redrive.plan` makes of an order for all letters, without Spark."""
    picks = picks or [Pick(letter.id) for letter in grave.letters()]
    told = Redrive("r1", until=grave.until(), selected=len(picks), dead=getattr(grave, "dead", ""))
    for name, value in fields.items():
        told = type(told)(**{**{f: getattr(told, f) for f in told.__struct_fields__}, name: value})
    return Planned(told, picks, is_known=False)


def take(db: redis.Redis, count: int) -> list[bytes]:
    """Be a worker: read so many jobs, and keep them."""
    db.xgroup_create(JOBS.stream, "default", "0", mkstream=True)
    rows: Any = db.xreadgroup("default", "me", {JOBS.stream: ">"}, count=count)
    return [entry for entry, _ in rows[0][1]]


def test_all_letters_wait_again_in_their_order_with_all_their_attempts(
    grave: ChasquiGrave, db: redis.Redis
) -> None:
    bury(db, 600)
    done = redrive.run(grave, planned(grave), Order())
    assert (done.moved, done.state, done.refused) == (600, DONE, 0)
    assert waiting(db) == [(f"job-{n}", {"n": n}, 0) for n in range(600)]
    assert dead(db) == []
    assert [each.moved for each in grave.known()] == [600]


def test_attempts_are_kept_if_that_is_asked_for(grave: ChasquiGrave, db: redis.Redis) -> None:
    bury(db, 2)
    redrive.run(grave, planned(grave, attempts="keep"), Order())
    assert [attempt for _, _, attempt in waiting(db)] == [3, 3]


def test_a_new_payload_replaces_the_old(grave: ChasquiGrave, db: redis.Redis) -> None:
    bury(db, 1)
    key = next(iter(grave.letters())).id
    redrive.run(grave, planned(grave, [Pick(key, grave.packed(key, '{"m": 1}'))]), Order())
    assert waiting(db) == [("job-0", {"m": 1}, 0)]


@pytest.mark.parametrize("value", ["{", b"\xc1", "\ud800"])
def test_what_is_no_payload_is_refused(grave: ChasquiGrave, value: Any) -> None:
    with pytest.raises(SettingsError, match="nothing was moved"):
        grave.packed("1-0", value)


def test_letters_that_are_no_jobs_stay(grave: ChasquiGrave, db: redis.Redis) -> None:
    bury(db, 1)
    db.xadd(JOBS.dlq, {"d": b"junk", "reason": "malformed"})
    done = redrive.run(grave, planned(grave), Order())
    assert (done.moved, done.refused) == (1, 1)
    assert [fields[b"d"] for fields in dead(db)] == [b"junk"]


def test_what_was_moved_is_not_moved_again(grave: ChasquiGrave, db: redis.Redis) -> None:
    bury(db, 5)
    plan = planned(grave)
    redrive.run(grave, plan, Order())
    again = redrive.run(grave, plan, Order())
    assert (again.moved, len(waiting(db))) == (5, 5)


def test_undo_puts_back_what_no_worker_has_taken_as_it_was(
    grave: ChasquiGrave, db: redis.Redis
) -> None:
    buried = bury(db, 10)
    plan = planned(grave)
    redrive.run(grave, plan, Order())
    first, second, *_ = take(db, 2)
    db.xack(JOBS.stream, "default", first)
    db.xdel(JOBS.stream, first)
    assert grave.undo(plan.told) == Undone(back=8, running=1, consumed=1)
    assert dead(db) == buried[2:]
    rows: Any = db.xrange(JOBS.stream)
    assert [entry for entry, _ in rows] == [second]
    assert [(each.state, each.undone) for each in grave.known()] == [(UNDONE, 8)]


def test_undo_twice_puts_nothing_back_twice(grave: ChasquiGrave, db: redis.Redis) -> None:
    bury(db, 3)
    plan = planned(grave)
    redrive.run(grave, plan, Order())
    grave.undo(plan.told)
    assert grave.undo(plan.told) == Undone()
    assert len(dead(db)) == 3


def test_a_redrive_that_was_undone_moves_nothing_more(grave: ChasquiGrave, db: redis.Redis) -> None:
    bury(db, 3)
    plan = planned(grave)
    redrive.run(grave, plan, Order())
    grave.undo(plan.told)
    again = [Pick(letter.id) for letter in grave.letters()]
    with pytest.raises(QueueError, match="was undone"):
        grave.move(plan.told, again)
    assert (len(dead(db)), waiting(db)) == (3, [])


def test_undoing_what_nobody_knows_is_an_error(grave: ChasquiGrave) -> None:
    with pytest.raises(QueueError, match="knows of no redrive 'nil'"):
        grave.undo(Redrive("nil"))


def test_a_full_queue_stops_a_redrive_that_goes_on_later(
    store: Store, server: Server, db: redis.Redis
) -> None:
    bury(db, 5)
    small = ChasquiGrave(store, server.url, "orders", Policy(max_stream_len=3))
    plan = planned(small)
    with pytest.raises(QueueError, match="3 letters were moved"):
        redrive.run(small, plan, Order())
    assert (len(waiting(db)), len(dead(db))) == (3, 2)
    wide = ChasquiGrave(store, server.url, "orders", Policy())
    assert redrive.run(wide, plan, Order()).moved == 5


def test_the_others_do_not_follow_those_that_died_again(
    grave: ChasquiGrave, db: redis.Redis
) -> None:
    bury(db, 10)
    plan = planned(grave, canary=2)

    def work(_: int) -> None:
        for entry in take(db, 2):
            bury(db, 1, first=int(len(dead(db)) == 9))
            db.xack(JOBS.stream, "default", entry)
            db.xdel(JOBS.stream, entry)

    done = redrive.run(grave, plan, Order(canary=0.2), work)
    assert (done.state, done.moved, done.fates) == (STOPPED, 2, {"died": 2})
    assert done.why == "2 of 2 that went ahead failed again"
    assert ids(dead(db))[:8] == [f"job-{n}" for n in range(2, 10)]


def test_the_others_follow_those_that_are_done(grave: ChasquiGrave, db: redis.Redis) -> None:
    bury(db, 10)

    def work(moved: int) -> None:
        if moved == 2:
            for entry in take(db, 2):
                db.xack(JOBS.stream, "default", entry)
                db.xdel(JOBS.stream, entry)

    done = redrive.run(grave, planned(grave, canary=2), Order(canary=0.2), work)
    assert (done.state, done.moved, done.fates) == (DONE, 10, {"done": 2})


def test_without_a_worker_the_others_stay(grave: ChasquiGrave, db: redis.Redis) -> None:
    bury(db, 10)
    plan, order = planned(grave, canary=1), Order(canary=0.1, canary_wait_s=0.1)
    done = redrive.run(grave, plan, order)
    assert (done.state, done.moved, done.fates) == (STOPPED, 1, {"waiting": 1})
    assert "is a worker there?" in done.why
    # Whoever goes on without a canary has seen it.
    rest = planned(grave, canary=1)
    assert redrive.run(grave, rest, Order()).moved == 10


def test_events_tell_who_is_tried_again_and_who_is_done(
    grave: ChasquiGrave, db: redis.Redis
) -> None:
    bury(db, 4)
    plan = planned(grave, canary=4)
    grave.begin(plan.told)
    grave.move(plan.told, plan.picks)
    for entry in take(db, 3)[:2]:
        db.xack(JOBS.stream, "default", entry)
        db.xdel(JOBS.stream, entry)
    db.xadd(JOBS.events, {"e": "retry-scheduled", "id": "job-0", "ts": 1})
    found = grave.fates(plan.told)
    assert found == {"retrying": 1, "done": 1, "running": 1, "waiting": 1}
    db.xadd(JOBS.events, {"e": "completed", "id": "job-0", "ts": 2})
    assert grave.fates(plan.told)["done"] == 2


def test_redrives_that_are_forgotten_are_listed_no_more(
    grave: ChasquiGrave, db: redis.Redis
) -> None:
    bury(db, 1)
    grave.begin(planned(grave).told)
    db.delete(JOBS.redrive("r1"))
    assert grave.known() == []
    assert db.exists(JOBS.redrives) == 0


@pytest.mark.parametrize(
    ("fates", "said"),
    [
        ({"done": 10}, ""),
        ({"done": 9, "died": 1}, ""),
        ({"done": 8, "died": 1, "retrying": 1}, "2 of 10 that went ahead failed again"),
        ({"done": 8, "running": 2}, "2 of 10 that went ahead were not done after 60 s"),
        ({}, ""),
    ],
)
def test_a_few_that_fail_are_tolerated(fates: dict[str, int], said: str) -> None:
    assert redrive.verdict(Counter(fates), Order()).startswith(said)
    assert bool(redrive.verdict(Counter(fates), Order())) == bool(said)


# ── RSMQ ─────────────────────────────────────────────────────────────────────


@pytest.fixture
def mourned(rsmq: Rsmq, db: redis.Redis) -> dict[bytes, bytes]:
    """A queue and its dead letters: the hash of these as it is."""
    rsmq.create_queue("orders", maxsize=2000)
    rsmq.create_queue("orders-dead", maxsize=-1)
    for n, id in enumerate(rsmq.send_messages("orders-dead", [b"m%d" % n for n in range(6)])):
        db.hset("rsmq:orders-dead:Q", f"{id}:why", f"gave up on {n}")
    found: Any = db.hgetall("rsmq:orders-dead:Q")
    return {name: value for name, value in found.items() if len(name) >= 32}


@pytest.fixture
def tomb(store: Store) -> RsmqGrave:
    return RsmqGrave(store, RsmqKeys(), "orders")


def test_messages_are_received_again_under_their_ids(
    tomb: RsmqGrave, rsmq: Rsmq, mourned: dict[bytes, bytes]
) -> None:
    names = [letter.id for letter in tomb.letters()]
    done = redrive.run(tomb, planned(tomb), Order())
    assert (done.moved, done.state) == (6, DONE)
    got = rsmq.receive_messages("orders", 10)
    assert [(each.id, each.rc) for each in got] == [(name, 1) for name in names]
    assert rsmq.get_queue_attributes("orders-dead").msgs == 0


def test_undo_puts_messages_back_with_their_reasons(
    tomb: RsmqGrave, rsmq: Rsmq, db: redis.Redis, mourned: dict[bytes, bytes]
) -> None:
    scores = db.zrange("rsmq:orders-dead", 0, -1, withscores=True)
    plan = planned(tomb, [Pick(letter.id, b"new") for letter in tomb.letters()])
    redrive.run(tomb, plan, Order())
    taken = rsmq.receive_message("orders")
    gone = rsmq.pop_message("orders")
    assert taken is not None
    assert gone is not None
    assert tomb.undo(plan.told) == Undone(back=4, running=1, consumed=1)
    found: Any = db.hgetall("rsmq:orders-dead:Q")
    out = {taken.id.encode(), gone.id.encode()}
    left = {n: v for n, v in mourned.items() if n[:32] not in out}
    assert {name: value for name, value in found.items() if len(name) >= 32} == left
    assert db.zrange("rsmq:orders-dead", 0, -1, withscores=True) == scores[2:]


def test_letters_that_somebody_looks_at_or_that_do_not_fit_stay(
    tomb: RsmqGrave, rsmq: Rsmq, mourned: dict[bytes, bytes]
) -> None:
    plan = planned(tomb)
    plan.picks[1] = Pick(plan.picks[1].key, b"x" * 2001)
    seen = rsmq.receive_message("orders-dead")
    assert seen is not None
    done = redrive.run(tomb, plan, Order())
    assert (done.moved, done.held, done.refused) == (4, 1, 1)
    assert rsmq.get_queue_attributes("orders-dead").msgs == 2


def test_messages_that_die_again_are_seen(
    tomb: RsmqGrave, rsmq: Rsmq, db: redis.Redis, mourned: dict[bytes, bytes]
) -> None:
    plan = planned(tomb, canary=4)
    tomb.begin(plan.told)
    tomb.move(plan.told, plan.picks[:4])
    assert tomb.fates(plan.told) == {"waiting": 4}
    first, second, _ = (rsmq.receive_message("orders") for _ in range(3))
    assert first is not None
    assert second is not None
    rsmq.delete_message("orders", first.id)
    rsmq.delete_message("orders", second.id)
    db.zadd("rsmq:orders-dead", {second.id: 1})
    assert tomb.fates(plan.told) == {"done": 1, "died": 1, "running": 1, "waiting": 1}


def test_attempts_of_messages_cannot_be_kept(tomb: RsmqGrave, mourned: dict[bytes, bytes]) -> None:
    with pytest.raises(SettingsError, match="RSMQ forgets"):
        redrive.plan(tomb, lambda: None, Order(attempts="keep"))


def test_all_graves_of_a_server_are_found(
    store: Store, server: Server, db: redis.Redis, mourned: dict[bytes, bytes]
) -> None:
    bury(db, 1)
    found = [grave.address for grave in Yard(store, server.url).graves()]
    assert found == [Address("chasqui", "orders"), Address("rsmq", "orders")]


# ── going on ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (Order(id="r1", where="a"), "was begun with --where ''"),
        (Order(id="r1", attempts="keep"), "was begun with --attempts 'reset'"),
        (Order(id="not an id"), "--id: "),
    ],
)
def test_a_redrive_goes_on_only_as_it_was_begun(
    grave: ChasquiGrave, db: redis.Redis, order: Order, said: str
) -> None:
    bury(db, 1)
    grave.begin(planned(grave).told)
    with pytest.raises(SettingsError, match=said):
        redrive.plan(grave, lambda: None, order)


def test_a_redrive_that_was_undone_does_not_go_on(grave: ChasquiGrave, db: redis.Redis) -> None:
    bury(db, 1)
    plan = planned(grave)
    redrive.run(grave, plan, Order())
    grave.undo(plan.told)
    with pytest.raises(SettingsError, match="begin another"):
        redrive.plan(grave, lambda: None, Order(id="r1"))
