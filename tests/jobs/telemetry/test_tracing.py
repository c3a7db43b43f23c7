"""Traces of typed jobs, with the real SDK of OpenTelemetry and an exporter that records."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from subprocess import run as run_process
from typing import Any

import pytest
import redis
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from tambomq.chasqui import Queue
from tambomq.chasqui.keys import Keys
from tambomq.errors import InvalidFormat
from tambomq.jobs import Context, Jobs
from tambomq.jobs.telemetry import Tracing
from tests.servers import Server, eventually_async


class Traced:
    """A `Jobs` with two functions, and the spans that were made."""

    def __init__(self, url: str) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.jobs = mail = Jobs("mail", redis_url=url)
        Tracing(mail, tracer_provider=self.provider)

        @mail.job(attempts=2, backoff=1)
        async def welcome(to: str) -> None:
            with self.provider.get_tracer("app").start_as_current_span("inside"):
                if to == "nobody":
                    raise ValueError("no such address")

        @mail.job
        def later(ctx: Context) -> str:
            if ctx.attempt == 1:
                ctx.retry_in(1, "busy")
            return format(get_current_span().get_span_context().trace_id, "x")

        self.welcome, self.later = welcome, later

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        [found] = self.spans(name)
        return found


@pytest.fixture
async def traced(server: Server) -> AsyncIterator[Traced]:
    made = Traced(server.url)
    async with made.jobs:
        yield made


def trace_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


def is_child(span: ReadableSpan, of: ReadableSpan) -> bool:
    assert of.context is not None
    return span.parent is not None and span.parent.span_id == of.context.span_id


async def test_add_wait_and_run_are_spans_of_one_trace(traced: Traced, db: redis.Redis) -> None:
    handle = await traced.welcome.add(to="ada")
    await traced.jobs.run_due()
    add, wait, run = traced.span("add mail"), traced.span("wait mail"), traced.span("run mail")
    assert (add.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert is_child(wait, add)
    assert is_child(run, add)
    assert is_child(traced.span("inside"), run)
    assert run.attributes == {
        "messaging.system": "chasquimq",
        "messaging.destination.name": "mail",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.message.id": handle.id,
        "messaging.chasquimq.job.name": "welcome",
        "messaging.chasquimq.job.attempt": 1,
    }
    assert [*db.scan_iter("*:trace:*")] == []


async def test_delays_and_retries_keep_the_trace(traced: Traced) -> None:
    await traced.later.options(delay_s=3600).add()
    first, second = await traced.jobs.run_due(now=7200)
    assert (first.outcome, second.outcome) == ("retried", "completed")
    add, runs = traced.span("add mail"), traced.spans("run mail")
    assert all(is_child(run, add) for run in runs)
    assert second.result == format(trace_id(add), "x")
    # To come again later is no error.
    assert runs[0].status.status_code is StatusCode.UNSET
    assert runs[0].attributes is not None
    assert runs[0].attributes["messaging.chasquimq.job.outcome"] == "retried"


async def test_each_run_has_a_wait_before_it(traced: Traced) -> None:
    await traced.welcome.add(to="nobody")
    await traced.jobs.run_due(now=60)
    waits, runs = traced.spans("wait mail"), traced.spans("run mail")
    assert len(waits) == len(runs) == 2
    for attempt, (wait, run) in enumerate(zip(waits, runs, strict=True), 1):
        assert wait.attributes is not None
        assert wait.attributes["messaging.chasquimq.job.attempt"] == attempt
        assert is_child(wait, traced.span("add mail"))
        assert wait.start_time is not None
        assert wait.end_time is not None
        assert run.start_time is not None
        assert wait.start_time <= wait.end_time <= run.start_time
    # The second one began when the retry was promoted, after the first run.
    assert runs[0].end_time is not None
    # A stream entry has milliseconds, a span nanoseconds.
    assert waits[1].start_time is not None
    assert waits[1].start_time // 1_000_000 >= runs[0].end_time // 1_000_000 - 1


async def test_a_dead_letter_waits_from_when_it_was_replayed(traced: Traced) -> None:
    await traced.welcome.options(attempts=1).add(to="nobody")
    await traced.jobs.run_due()
    replayed_ms = time.time_ns() // 1_000_000
    assert await traced.jobs.queue.replay_dlq() == 1
    await traced.jobs.run_due()
    first, second = traced.spans("wait mail")
    assert first.start_time is not None
    assert second.start_time is not None
    assert first.start_time // 1_000_000 < replayed_ms <= second.start_time // 1_000_000
    assert is_child(second, traced.span("add mail"))


@pytest.mark.parametrize("outcome", ["cancelled", "returned"])
async def test_an_interrupted_run_is_no_error(traced: Traced, outcome: str) -> None:
    begun = asyncio.Event()

    @traced.jobs.job
    async def forever() -> None:
        begun.set()
        await asyncio.Event().wait()

    worker = traced.jobs.worker(grace_s=0)
    working = asyncio.create_task(worker.run())
    handle = await forever.add()
    await begun.wait()
    if outcome == "cancelled":
        assert await handle.cancel("not needed")
        await eventually_async(lambda: bool(traced.spans("run mail")))
    await worker.close()
    await working
    run = traced.span("run mail")
    assert run.status.status_code is StatusCode.UNSET
    assert run.attributes is not None
    assert run.attributes["messaging.chasquimq.job.outcome"] == outcome


async def test_a_failed_run_says_why(traced: Traced) -> None:
    await traced.welcome.add(to="nobody")
    await traced.jobs.run_due(now=60)
    for run in traced.spans("run mail"):
        assert run.status.status_code is StatusCode.ERROR
        assert run.attributes is not None
        assert run.attributes["error.type"] == "ValueError"
        assert [event.name for event in run.events] == ["exception"]


async def test_many_adds_are_one_span(traced: Traced) -> None:
    calls = [traced.welcome.call(to=str(n)) for n in range(3)]
    await traced.jobs.add_many(calls)
    await traced.jobs.run_due()
    add = traced.span("add mail")
    assert add.attributes is not None
    assert add.attributes["messaging.batch.message_count"] == 3
    assert [is_child(run, add) for run in traced.spans("run mail")] == [True] * 3


def test_blocking_adds_are_traced_too(server: Server) -> None:
    traced = Traced(server.url)
    traced.welcome.add_sync(to="ada")
    traced.jobs.add_many_sync([traced.welcome.call(to="bob")])
    traced.jobs.run_due_sync()
    adds, runs = traced.spans("add mail"), traced.spans("run mail")
    assert [is_child(run, add) for add, run in zip(adds, runs, strict=True)] == [True] * 2
    traced.jobs.close_sync()


async def test_a_job_that_others_added_begins_a_trace(traced: Traced, server: Server) -> None:
    async with Queue("mail", redis_url=server.url) as queue:
        await queue.add("welcome", {"to": "ada"})
    await traced.jobs.run_due()
    assert traced.span("run mail").parent is None


async def test_the_job_has_the_same_fields_as_without_tracing(
    traced: Traced, server: Server, db: redis.Redis
) -> None:
    await traced.welcome.add(to="ada")
    async with Queue("plain", redis_url=server.url) as queue:
        await queue.add("welcome", {"to": "ada"}, attempts=2, backoff=1)
    streams: Any = [db.xrange(Keys(name).stream) for name in ("mail", "plain")]
    [(_, ours)], [(_, plain)] = streams
    assert ours.keys() == plain.keys()
    assert len(ours[b"d"]) == len(plain[b"d"])
    [key] = [*db.scan_iter("*:trace:*")]
    left_s: Any = db.ttl(key)
    assert 0 < left_s <= 86_400


async def test_of_two_adds_with_one_id_the_first_is_the_parent(traced: Traced) -> None:
    once = traced.welcome.options(job_id="w-1")
    assert (await once.add(to="ada")).added
    assert not (await once.add(to="bob")).added
    await traced.jobs.run_due()
    assert is_child(traced.span("run mail"), traced.spans("add mail")[0])


def test_jobs_are_traced_once() -> None:
    jobs = Jobs("mail")
    Tracing(jobs)
    with pytest.raises(InvalidFormat, match="traced once"):
        Tracing(jobs)


def test_typed_jobs_need_no_opentelemetry() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import tambomq.jobs.telemetry.errors"
    code += "\ntry:\n import tambomq.jobs.telemetry.tracing\n"
    code += "except ModuleNotFoundError as e: print(e)"
    done = run_process([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[otel]" in done.stdout or "tambomq[otel]" in done.stdout
