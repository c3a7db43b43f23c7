"""Everything that an operator does: the commands for queues, their journals, and for looking."""

from __future__ import annotations

import asyncio
import json

from tambomq.chasqui import BlockingQueue, Job, UnrecoverableError, Worker
from tambomq.cli.main import tambo
from tambomq.journal.policy import JournalBounds
from tambomq.rsmq import Rsmq
from tests.cli.transcript import Done, call
from tests.servers import eventually_async

_DONE = {0, 3}
"""Done, or nothing there: anything else is a refusal."""


def rsmq_operator(url: str, queue: str) -> None:
    """Make, look at, bound, empty and delete a queue, and do everything to its messages."""

    def run(*words: str) -> Done:
        return _run(url, "rsmq", *words[:2], "-n", queue, *words[2:])

    run("queue", "create")
    with Rsmq(url, journal=(queue,), patience_s=0) as recording:
        recording.send_messages(queue, ["recorded", "too"])
        recording.pop_message(queue)
    run("queue", "set", "--visibility-timeout", "20")
    run("queue", "bound", "--ttl", "1d", "--max-bytes", "1000000")
    for words in (("describe",), ("stats",), ("sweep",), ("bound", "--max-messages", "9000")):
        run("queue", *words)
    _run(url, "rsmq", "queue", "list")
    _messages(url, queue)
    _run(url, "explain", f"rsmq:{queue}", json.loads(run("message", "peek", "--json").out)[0]["id"])
    run("queue", "purge", "--yes")
    run("queue", "bound", "--max-messages", "-1", "--ttl", "-1", "--max-bytes", "-1")
    run("queue", "delete", "--yes")


def _messages(url: str, queue: str) -> None:
    def run(*words: str) -> Done:
        return _run(url, "rsmq", "message", *words[:1], "-n", queue, *words[1:])

    run("send", "-m", "one", "-m", "two", "--realtime")
    run("send", "-m", "recorded", "--journal")
    run("peek")
    received = json.loads(run("receive", "--json").out)
    run("visibility", "-i", received["id"], "-t", "60")
    run("delete", "-i", received["id"])
    run("pop")


def fill(url: str, queue: str) -> None:
    """Leave dead letters and a consumer group, as workers do."""
    asyncio.run(_bury(url, queue))


async def _bury(url: str, queue: str) -> None:
    async def fail(job: Job) -> None:
        raise UnrecoverableError(job.name)

    with BlockingQueue(queue, redis_url=url, journal=JournalBounds()) as jobs:
        for n in range(4):
            jobs.add("bad", n, job_id=f"bad-{n}")
    worker = Worker(queue, fail, redis_url=url)
    running = asyncio.create_task(worker.run())
    await eventually_async(lambda: worker.stats.buried == 4 or running.done())
    await worker.close()
    await running


def chasqui_operator(url: str, queue: str) -> None:
    """Add, look at, retry, replay, cancel, pause, clean and obliterate."""

    def run(*words: str) -> Done:
        return _run(url, "chasqui", *words)

    run("dlq", "peek", queue, "--json")
    run("job", "show", queue, "bad-0")
    run("job", "retry", queue, "bad-0")
    run("dlq", "replay", queue, "--limit", "1", "--yes")
    run("add", queue, "plain", "1", "--id", "plain")
    run("add", queue, "plain", "1", "--id", "once", "--once", "--journal")
    run("add", queue, "later", "1", "--id", "later", "--delay", "1h")
    run("add", queue, "later", "1", "--id", "soon", "--delay", "1h")
    run("add", queue, "tick", "--every", "1h")
    run("repeatable", "add", queue, "tock", "--every", "1h", "--key", "tock")
    run("repeatable", "list", queue)
    run("repeatable", "remove", queue, "tock")
    run("queues")
    run("inspect", queue)
    run("counts", queue)
    run("workers", queue)
    run("result", queue, "plain")
    for id in ("plain", "later", "bad-1", "nobody"):
        run("job", "show", queue, id)
        _run(url, "explain", f"chasqui:{queue}", id)
    run("job", "retry", queue, "soon")
    run("job", "remove", queue, "plain", "--yes")
    run("job", "remove", queue, "bad-2", "--yes")
    run("cancel", queue, "later")
    run("pause", queue)
    run("resume", queue)
    for state in ("dlq", "waiting", "delayed"):
        run("clean", queue, "--state", state, "--limit", "1", "--yes")
    run("drain", queue, "--delayed", "--yes")
    run("obliterate", queue, "--force", "--yes")


def _run(url: str, *words: str) -> Done:
    done = call(tambo, "tambo", *words, url=url)
    assert done.code in _DONE, (words, done.out, done.err)
    return done
