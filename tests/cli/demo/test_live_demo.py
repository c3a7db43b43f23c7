"""``tambo demo --live``: traffic that goes on, with failures to look at, and leaves nothing."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tambomq.cli.demo import live
from tambomq.cli.demo.display import DemoDisplay, DemoPlan, DemoResult
from tambomq.cli.main import tambo
from tests.cli.running import WITHIN_S, Start, starting
from tests.cli.transcript import call
from tests.serve.processes import Serving, serving
from tests.servers import Server, eventually, eventually_async

PROTOCOLS = ["rsmq", "chasqui", "gomq", "kqueue"]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("serve")) as serve:
        assert serve.ready
        yield serve


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as start:
        yield start


def is_empty(url: str) -> bool:
    with redis.Redis.from_url(url) as db:
        assert (found := db.keys("*")) == [], found
    return True


@pytest.mark.parametrize("play", [live.rsmq, live.chasqui])
async def test_traffic_that_is_cancelled_deletes_its_queues(
    server: Server, play: Callable[[DemoPlan, DemoResult], Coroutine[Any, Any, None]]
) -> None:
    plan = DemoPlan("demo-x", 0, 0, server.url, "127.0.0.1:1", ("127.0.0.1", 1))
    result = DemoResult("any", DemoDisplay())
    playing = asyncio.create_task(play(plan, result))
    await eventually_async(lambda: (result.sent and result.received) or playing.done())
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    await eventually_async(lambda: is_empty(server.url))


@pytest.mark.slow
def test_dead_letters_delays_schedules_and_peers_are_there_until_it_is_stopped(
    serve: Serving, start: Start
) -> None:
    running = start("demo", "--live", "--ready-file", str(serve.ready_file))
    # The line is wrapped there if the port is long.
    running.says(rf"open\s{serve.address('http')}", "err")
    with redis.Redis.from_url(serve.url) as client:
        db: Any = client

        def everything() -> bool:
            names = [key.decode() for key in db.keys("*")]
            letters = [name for name in names if name.endswith("-mails}:dlq")]
            assert letters, names
            assert db.xlen(letters[0])
            stem = letters[0].removesuffix("dlq")
            assert (db.zcard(stem + "repeat"), db.exists(stem + "delayed")) == (2, 1), names
            assert any(name.endswith("-invoices-dead:Q") for name in names), names
            peers = [name for name in names if name.startswith("PEERS_demo-")]
            assert [db.scard(name) for name in peers] == [2], names
            return True

        eventually(everything, within_s=WITHIN_S)
    assert running.stop(signal.SIGINT) == 0, running.err
    assert "everything that was made in Redis is deleted" in running.out
    eventually(lambda: is_empty(serve.url), within_s=WITHIN_S)


@pytest.mark.slow
def test_traffic_moves_through_all_protocols_for_the_time_that_is_asked(serve: Serving) -> None:
    words = ("demo", "--for", "4s", "--ready-file", str(serve.ready_file), "--json")
    result = call(tambo, "tambo", *words, url=serve.url)
    assert result.code == 0, result
    found = json.loads(result.out)["protocols"]
    assert list(found) == PROTOCOLS
    assert all(each["sent"] and each["received"] for each in found.values()), found
    eventually(lambda: is_empty(serve.url), within_s=WITHIN_S)
