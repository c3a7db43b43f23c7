"""What an RSMQ worker shows and obeys from outside: observer, proof of consumption, pause."""

from __future__ import annotations

from tambomq.rsmq import Message, Reject, RsmqWorker
from tests.rsmq.working import AT_ONCE, send, working
from tests.runtime.test_observer import Recorder
from tests.servers.poll import eventually_async
from tests.servers.run import Server


async def test_each_run_is_reported_with_its_outcome(server: Server) -> None:
    async def handler(message: Message) -> None:
        if message.text == "dead":
            raise Reject("no use")
        if message.text == "retried" and message.rc == 1:
            raise SystemExit("again")

    await send(server, "completed", "dead", "retried")
    recorder = Recorder()
    worker = RsmqWorker("q", handler, url=server.url, backoff=AT_ONCE)
    worker.observer = recorder
    async with working(worker):
        await eventually_async(lambda: len(recorder.ended) == 4, within_s=20)
        await eventually_async(lambda: worker.in_flight == 0)
        assert worker.is_consuming
        worker.pause_fetching()
        await send(server, "unread")
        assert worker.is_running
        await worker.close()
    outcomes = sorted(each.outcome for each in recorder.ended)
    assert outcomes == ["completed", "completed", "dead", "retried"]
    assert worker.name == "q"
    assert not worker.is_consuming
