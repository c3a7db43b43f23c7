"""A tail of many queues goes on when one of them is no stream."""

from __future__ import annotations

import logging

import pytest
import redis

from tambomq.spark.formats.chasqui.streams import StreamTable
from tests.servers import Server
from tests.spark.tailing import Query, column, reader

TABLE = StreamTable("dlq")


def bury(db: redis.Redis, queue: str) -> None:
    db.xadd(TABLE.key(queue), {"d": "x", "reason": "panic"})


def test_a_found_queue_of_another_type_does_not_stop_others(
    server: Server, db: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    bury(db, "orders")
    db.set(TABLE.key("damaged"), "x")
    source = reader(server.url, "*", table=TABLE)
    query = Query(source)
    with caplog.at_level(logging.WARNING):
        assert column(query.batch() or [], "queue") == ["orders"]
        bury(db, "orders")
        assert column(query.batch() or [], "queue") == ["orders"]
    logged = [each for each in caplog.messages if "queue 'damaged' is skipped" in each]
    assert len(logged) == 1
    # It is followed once it is one.
    db.delete(TABLE.key("damaged"))
    bury(db, "damaged")
    assert column(query.batch() or [], "queue") == ["damaged"]
    source.stop()
