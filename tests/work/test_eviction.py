"""`tambo work` warns once of a server that deletes messages when its memory is full."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tests.servers import Server, eventually
from tests.work.supervising import WITHIN_S
from tests.work.supervising import shop as open_shop


@pytest.mark.slow
def test_one_process_warns_for_all(tmp_path: Path, private_server: Server) -> None:
    with redis.Redis.from_url(private_server.url) as db:
        db.config_set("maxmemory-policy", "allkeys-lru")
    with open_shop(tmp_path, private_server.url) as shop:
        shop.write("""
            async def handle(job: Job) -> None:
                pass

            first = Worker("a", handle, redis_url=URL)
            second = Worker("b", handle, redis_url=URL)
        """)
        work = shop.work("app", "--processes", "2").ready()
        eventually(lambda: "allkeys-lru deletes queues" in work.err, within_s=WITHIN_S)
        assert work.stop() == 0
        assert work.err.count("allkeys-lru deletes queues") == 1
