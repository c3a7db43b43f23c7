"""Traced jobs on a queue that the released engine shares: it runs ours, and we run its."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tambomq.jobs import Jobs
from tambomq.jobs.telemetry import Tracing
from tests.peers import fixtures
from tests.peers.chasqui import Scene
from tests.servers import eventually

pytestmark = pytest.mark.interop

chasquis, scene, _ = fixtures.chasqui


def traced(scene: Scene) -> tuple[Jobs, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    jobs = Jobs(scene.keys.queue, redis_url=scene.url, dialect="engine")
    Tracing(jobs, tracer_provider=provider)

    @jobs.job
    async def welcome(to: str) -> None: ...

    return jobs, exporter


def test_the_engine_runs_traced_jobs_waiting_and_delayed(scene: Scene) -> None:
    jobs, exporter = traced(scene)
    welcome = jobs.definitions["welcome"]
    ids = {welcome.add_sync(to="ada").id, welcome.options(delay_s=0.2).add_sync(to="bob").id}
    scene.get("theirs").work()
    eventually(lambda: len(scene.ran()) == 2 and scene.is_empty(), within_s=20)
    assert {run.id for run in scene.ran()} == ids
    assert [span.name for span in exporter.get_finished_spans()] == [f"add {jobs.queue_name}"] * 2
    jobs.close_sync()


def test_jobs_of_the_engine_run_in_traces_of_their_own(scene: Scene) -> None:
    jobs, exporter = traced(scene)
    id = scene.get("theirs").add("welcome", {"to": "ada"})
    [run] = jobs.run_due_sync()
    assert (run.id, run.outcome) == (id, "completed")
    [span] = [each for each in exporter.get_finished_spans() if each.name.startswith("run ")]
    assert span.parent is None
