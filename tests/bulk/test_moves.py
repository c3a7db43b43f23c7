"""The record of a move: a batch is counted once, and only the batch that is on its way."""

from __future__ import annotations

import redis

from tambomq.bulk import moves
from tambomq.bulk.moves import Tally
from tambomq.store.sync import Store

MOVE, TRANSIT = "move", "transit"


def under_way(db: redis.Redis, number: int) -> None:
    db.hset(MOVE, mapping={"run": "r", "number": number})
    db.rpush(TRANSIT, "id", "body")


def test_a_batch_that_has_arrived_is_counted_once(store: Store, db: redis.Redis) -> None:
    under_way(db, 1)
    assert store.run(moves.arrived(MOVE, TRANSIT, 1, Tally(2, 7)))
    assert not store.run(moves.arrived(MOVE, TRANSIT, 1, Tally(2, 7)))
    assert store.run(moves.left(MOVE)) == Tally(2, 7)


def test_the_arrival_of_an_earlier_batch_keeps_the_next_one_in_transit(
    store: Store, db: redis.Redis
) -> None:
    under_way(db, 2)
    assert not store.run(moves.arrived(MOVE, TRANSIT, 1, Tally(2, 7)))
    assert db.llen(TRANSIT) == 2
    assert store.run(moves.left(MOVE)) == Tally(0, 0)


def test_a_move_does_not_end_while_a_batch_is_in_transit(store: Store, db: redis.Redis) -> None:
    under_way(db, 1)
    assert not store.run(moves.over(MOVE, TRANSIT, "r"))
    db.delete(TRANSIT)
    assert not store.run(moves.over(MOVE, TRANSIT, "another"))
    assert store.run(moves.over(MOVE, TRANSIT, "r"))
    assert not db.exists(MOVE)
