"""The process that gives back the jobs of others: what it reads, does and prints."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import redis

from tambomq.chasqui import Queue
from tambomq.chasqui.keys import GROUP, RETURNED, Keys
from tambomq.chasqui.worker.in_flight import EntryLease
from tambomq.store.endpoint import endpoint
from tambomq.work.messages import ReleaseResult
from tambomq.work.process.lease_release import pack
from tests.servers import Server
from tests.servers.ports import free_port


def lease(url: str, queue: str = "q", idle_ms: int = 60_000) -> EntryLease:
    return EntryLease(endpoint(url), queue, GROUP, "dead", idle_ms)


def released(*leases: EntryLease) -> list[ReleaseResult]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tambomq.work.process.lease_release"],
        input="".join(f"{pack(each)}\n" for each in leases),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stderr == ""
    return [msgspec.json.decode(line, type=ReleaseResult) for line in done.stdout.splitlines()]


async def test_each_queue_is_released_and_one_without_a_server_holds_up_none(
    server: Server, db: redis.Redis
) -> None:
    for name in ("one", "two"):
        async with Queue(name, redis_url=server.url) as queue:
            await queue.add("job", None)
        db.xgroup_create(Keys(name).stream, GROUP, "0")
        db.xreadgroup(GROUP, "dead", {Keys(name).stream: ">"})
    away = lease(f"redis://127.0.0.1:{free_port()}", "away", 100)
    found = {each.queue: each for each in released(lease(server.url, "one"), away)}
    assert found["one"] == ReleaseResult("one", 1)
    assert (found["away"].jobs, found["away"].error != "") == (0, True)
    assert db.xpending(Keys("one").stream, GROUP)["consumers"][0]["name"] == RETURNED.encode()
    assert db.xpending(Keys("two").stream, GROUP)["consumers"][0]["name"] == b"dead"


def test_a_login_that_only_the_process_itself_has_is_not_handed_on() -> None:
    private = endpoint("redis://127.0.0.1:1", credentials=lambda: ("user", "password"))
    assert pack(EntryLease(private, "q", GROUP, "dead", 1000)) is None


def test_a_queue_that_was_deleted_has_no_jobs(server: Server) -> None:
    assert released(lease(server.url, "gone")) == [ReleaseResult("gone", 0)]
