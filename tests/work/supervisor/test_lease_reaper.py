"""When leases are released: never before all that a process has started has ended."""

from __future__ import annotations

import subprocess
import sys

import redis

from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.worker.in_flight import EntryLease
from tambomq.store.endpoint import endpoint
from tambomq.work.process.lease_release import pack
from tests.servers import Server

# In a process of its own: the reaper collects every child that there is.
CODE = """
import asyncio, logging, os, signal, subprocess, sys
from types import SimpleNamespace
from tambomq.work.supervisor.lease_reaper import LeaseReaper
from tambomq.work.supervisor.reaper import ProcessReaper

logging.basicConfig(level="INFO", stream=sys.stdout, format="%(message)s")

async def main(forking, alone):
    reaper = ProcessReaper()
    reaper.start()
    leases = LeaseReaper(reaper)

    async def end(command, lease):
        leader = subprocess.Popen(
            ["sh", "-c", command], process_group=0, stdout=subprocess.PIPE)
        said = leader.stdout.readline()
        leader.returncode = await reaper.watch(leader.pid)
        leases.release(SimpleNamespace(pid=leader.pid, number=1, leases={"dead": lease}))
        return said, set(leases._tasks)

    # It has ended, but has left one behind in its group.
    left, first = await end("sleep 1000 & echo $!", forking)
    _, both = await end("echo", alone)
    await asyncio.gather(*(both - first))
    print("the one that was left behind is killed", flush=True)
    os.kill(int(left), signal.SIGKILL)
    await asyncio.gather(*first)
    await leases.close()
    reaper.stop()

asyncio.run(main(*sys.argv[1:]))
"""


def packed(server: Server, queue: str) -> str:
    text = pack(EntryLease(endpoint(server.url), queue, GROUP, "dead", 60_000))
    assert text is not None
    return text


def test_a_lease_is_released_when_the_last_of_the_process_group_has_ended(
    server: Server, db: redis.Redis
) -> None:
    for queue in ("forking", "alone"):
        stream = Keys(queue).stream
        db.xgroup_create(stream, GROUP, "0", mkstream=True)
        db.xadd(stream, {"d": "x"})
        db.xreadgroup(GROUP, "dead", {stream: ">"})
    done = subprocess.run(
        [sys.executable, "-c", CODE, packed(server, "forking"), packed(server, "alone")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "gave back 1 job of queue 'alone' that a process had when it ended",
        "the one that was left behind is killed",
        "gave back 1 job of queue 'forking' that a process had when it ended",
    ]
