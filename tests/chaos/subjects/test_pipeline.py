"""What has arrived is taken once, also while the server refuses writes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import redis

from tambomq.rsmq import Rsmq
from tests.chaos.subjects.pipeline import taken
from tests.servers import Server
from tests.servers.refusal import REFUSALS, Refusal, refusing_writes

QUEUE = "arrived"


@pytest.mark.parametrize("why", REFUSALS)
def test_what_cannot_be_taken_now_is_taken_later_and_once(
    why: Refusal, private_server: Server
) -> None:
    sent = [f"message {number}" for number in range(3)]
    with redis.Redis.from_url(private_server.url) as db, Rsmq(private_server.url) as rsmq:
        world: Any = SimpleNamespace(db=db)
        rsmq.create_queue(QUEUE)
        rsmq.send_messages(QUEUE, sent)
        had: list[str] = []
        with refusing_writes(private_server, why), pytest.raises(redis.RedisError):
            had += (text for _, text in taken(world, QUEUE))
        had += (text for _, text in taken(world, QUEUE))
        assert sorted(had) == sent
        assert list(taken(world, QUEUE)) == []
