"""Helpers of the worker's tests: servers, handlers that wait, and an independent client's view.

A test module imports the servers by ``server = working.server``: its tests then run on the
bundled server, and with the mark ``interop`` on the others too.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import redis

from tambomq.chasqui import Job, Worker
from tambomq.chasqui.keys import GROUP, Keys
from tests.servers import Server, eventually_async
from tests.servers.kinds import kinds


@pytest.fixture(params=kinds())
def server(request: pytest.FixtureRequest, running: Callable[[str], Server]) -> Server:
    """Each kind of server in turn, with nothing in it."""
    found = running(request.param)
    with redis.Redis.from_url(found.url) as admin:
        admin.flushall()
        admin.script_flush()
    return found


class GatedHandler:
    """A handler that records which jobs begin, and ends none before `go` is set.

    The first *quick* jobs end at once.
    """

    def __init__(self, quick: int = 0) -> None:
        self._quick = quick
        self.begun: list[Any] = []
        """The data of the jobs."""
        self.ended: list[Any] = []
        self.cancelled: list[Any] = []
        self.go = asyncio.Event()

    async def __call__(self, job: Job) -> None:
        self.begun.append(job.data)
        try:
            if len(self.begun) > self._quick:
                await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.append(job.data)
            raise
        self.ended.append(job.data)

    async def holds(self, count: int) -> None:
        """Return when *count* jobs have begun."""
        await eventually_async(lambda: len(self.begun) >= count, within_s=15)


class Process:
    """A worker in a process of its own; it records jobs in the lists ``begun`` and ``ended``."""

    def __init__(self, url: str, queue: str, *, hold_s: int = 0, **options: Any) -> None:
        """Hold the interpreter's lock for *hold_s* in each job but 0; else wait for key ``go``."""
        arguments = {"url": url, "queue": queue, "hold_s": hold_s, "options": options}
        self._command = [sys.executable, "-m", __name__, json.dumps(arguments)]

    def __enter__(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(self._command)
        return self._process

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def main() -> None:
    """Be such a process."""
    arguments = json.loads(sys.argv[1])
    db = redis.Redis.from_url(arguments["url"])

    async def handler(job: Job) -> None:
        db.rpush("begun", str(job.data))
        if arguments["hold_s"] and job.data != 0:
            # A function of a PyDLL does not release the interpreter's lock.
            ctypes.PyDLL(None).sleep(arguments["hold_s"])
        else:
            await eventually_async(lambda: db.exists("go"), within_s=60)
        db.rpush("ended", str(job.data))

    Worker(
        arguments["queue"], handler, redis_url=arguments["url"], **arguments["options"]
    ).run_forever()


async def completed(worker: Worker, count: int) -> None:
    """Return when *worker* has ended *count* jobs and settled them."""
    await eventually_async(lambda: worker.stats.completed >= count, within_s=20)


async def buried(worker: Worker, count: int) -> None:
    """Return when *worker* has moved *count* jobs to the dead-letter queue."""
    await eventually_async(lambda: worker.stats.buried >= count, within_s=20)


def pending(db: redis.Redis, keys: Keys, group: str = GROUP) -> dict[str, tuple[str, int]]:
    """By entry: in whose hands it is, and how often it was delivered."""
    rows: Any = db.xpending_range(keys.stream, group, "-", "+", 10_000)
    return {
        row["message_id"].decode(): (row["consumer"].decode(), row["times_delivered"])
        for row in rows
    }


def consumers(db: redis.Redis, keys: Keys, group: str = GROUP) -> list[str]:
    """Return the consumers of the group."""
    rows: Any = db.xinfo_consumers(keys.stream, group)
    return [row["name"].decode() for row in rows]


def entries(db: redis.Redis, stream: str) -> list[dict[str, str]]:
    """The fields of a stream's entries, in order; bytes that are not UTF-8 are escaped."""
    rows: Any = db.xrange(stream)
    return [
        {name.decode(): value.decode("utf-8", "backslashreplace") for name, value in fields.items()}
        for _, fields in rows
    ]


def emitted_events(db: redis.Redis, keys: Keys, *names: str) -> list[dict[str, str]]:
    """The events of these names, in their order."""
    return [event for event in entries(db, keys.events) if event["e"] in names]


def die_with(
    db: redis.Redis, keys: Keys, count: int = 1, *, times: int = 1, ago_ms: int = 0
) -> list[str]:
    """Take entries as a worker that dies, and so *times* times; return which."""
    if not db.exists(keys.stream) or not db.xinfo_groups(keys.stream):
        db.xgroup_create(keys.stream, GROUP, "0", mkstream=True)
    rows: Any = db.xreadgroup(GROUP, "dead", {keys.stream: ">"}, count=count)
    taken = [entry.decode() for entry, _ in rows[0][1]]
    for entry in taken:
        db.xclaim(
            keys.stream, GROUP, "dead", 0, [entry], idle=ago_ms, retrycount=times, justid=True
        )
    return taken


if __name__ == "__main__":
    main()
