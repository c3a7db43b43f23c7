from __future__ import annotations

import redis

from tambomq.backup.contents import count
from tambomq.backup.model import ProtocolCount
from tambomq.gomq.keys import QUEUE
from tambomq.rsmq import Rsmq
from tambomq.store.sync import Store
from tests.backup.filled import MESSAGES, fill
from tests.servers import Server


def test_queues_of_all_namespaces_and_protocols_are_counted(
    server: Server, store: Store, db: redis.Redis
) -> None:
    fill(server.url)
    with Rsmq(server.url, ns="{other}") as rsmq:
        rsmq.create_queue("orders")
        rsmq.send_message("orders", "one")
    db.rpush(f"{QUEUE}news", "one", "two", "three")
    assert count(store).protocols == {
        "rsmq": ProtocolCount(2, MESSAGES + 1),
        "chasqui": ProtocolCount(1, 2),
        "gomq": ProtocolCount(1, 3),
    }


def test_keys_of_another_type_count_as_empty(store: Store, db: redis.Redis) -> None:
    db.sadd("rsmq:QUEUES", "orders", "not a name")
    db.set("rsmq:orders", "no zset")
    db.sadd("a name:QUEUES", "x")
    db.set("SUBSCRIBED_KEYS", "no set")
    assert count(store).protocols["rsmq"] == ProtocolCount(1, 0)
    assert count(store).protocols["gomq"] == ProtocolCount(0, 0)
