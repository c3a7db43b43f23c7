"""The record of a redrive: what has become of it is final once it is undone."""

from __future__ import annotations

import pytest
import redis

from tambomq.bulk import redrives
from tambomq.store.sync import Store


@pytest.mark.parametrize("state", ["open", "done", "stopped"])
def test_a_redrive_that_was_undone_stays_undone(state: str, store: Store, db: redis.Redis) -> None:
    db.hset("record", "state", "undone")
    assert not store.run(redrives.settle("record", state))
    assert db.hget("record", "state") == b"undone"


def test_settling_a_deleted_redrive_does_not_create_it_again(store: Store, db: redis.Redis) -> None:
    assert not store.run(redrives.settle("record", "done"))
    assert not db.exists("record")


def test_a_redrive_that_is_open_ends(store: Store, db: redis.Redis) -> None:
    db.hset("record", "state", "open")
    assert store.run(redrives.settle("record", "done"))
    assert db.hget("record", "state") == b"done"
