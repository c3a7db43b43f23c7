"""URLs of sentinels, wherever a server URL is accepted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tambomq.chasqui import BlockingQueue
from tambomq.gomq import GomqClient
from tambomq.rsmq import Rsmq
from tambomq.settings.load import load
from tambomq.spark.core.options import RedisTarget
from tests.serve.processes import FREE_PORTS, serving, tambo
from tests.servers import eventually
from tests.servers.replaced import ReplacedServer

WITHIN_S = 60


@pytest.fixture
def servers() -> Iterator[ReplacedServer]:
    with ReplacedServer() as servers:
        yield servers


def test_a_url_of_sentinels_is_a_setting(tmp_path: Path) -> None:
    for url in ("redis+sentinel://a,b/prime", "rediss+sentinel://a/prime"):
        found = load(env={"TAMBO_REDIS_URL": url, "HOME": str(tmp_path)})
        assert found.server.redis_url == url


def test_commands_and_readers_of_spark_use_the_primary(
    servers: ReplacedServer, tmp_path: Path
) -> None:
    with Rsmq(servers.first.url) as rsmq:
        rsmq.create_queue("orders")
    done = tambo("top", "--once", "--json", "--redis-url", servers.url, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "orders" in done.stdout
    store = RedisTarget(servers.url).open()
    assert store.endpoint.sentinels is not None
    store.close()


def test_a_command_says_which_name_the_sentinels_do_not_know(
    servers: ReplacedServer, tmp_path: Path
) -> None:
    url = servers.url.replace("mymaster", "nobody")
    done = tambo("rsmq", "queue", "list", "--redis-url", url, cwd=tmp_path)
    assert done.returncode == 1
    assert "know no primary 'nobody'" in done.stderr


@pytest.mark.slow
def test_servers_and_leaders_follow_the_primary(servers: ReplacedServer, tmp_path: Path) -> None:
    with serving(tmp_path, *FREE_PORTS, "--redis-url", servers.url) as serve:
        with BlockingQueue("emails", redis_url=servers.url) as queue:
            queue.add("later", 1, delay_ms=50)
            eventually(lambda: queue.get_job_counts().waiting == 1, within_s=WITHIN_S)
        servers.replace()
        eventually(servers.is_left, within_s=WITHIN_S)
        with (
            BlockingQueue("emails", redis_url=servers.second.url) as queue,
            GomqClient(serve.address("gomq")) as client,
        ):
            queue.add("later", 2, delay_ms=50)
            eventually(lambda: queue.get_job_counts().waiting == 1, within_s=WITHIN_S)
            client.publish("news", "hello")
        code, text = serve.get("/healthz")
        assert (code, {each["ok"] for each in json.loads(text).values()}) == (200, {True})
        with servers.client(servers.second) as db:
            assert any(b"news" in key for key in db.scan_iter())
