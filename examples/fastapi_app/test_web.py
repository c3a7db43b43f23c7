"""Tests of the application, as you would write them: `tambo_url` comes from TamboMQ's plugin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from jobs import Report, reports, summarise
from web import app


@pytest.fixture
async def client(tambo_url: str) -> AsyncIterator[httpx.AsyncClient]:
    reports.redis_url = tambo_url
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as made:
        yield made
    await reports.close()


async def test_an_endpoint_adds_a_job_and_another_one_has_its_result(
    client: httpx.AsyncClient,
) -> None:
    added = await client.post("/reports/ada", params={"days": 70})
    assert added.status_code == 202
    worker = reports.worker()
    running = asyncio.create_task(worker.run())
    found = await client.get(f"/reports/{added.json()['job']}")
    assert found.json() == {"customer": "ada", "orders": 7}
    await worker.close()
    await running


async def test_a_job_is_typed(client: httpx.AsyncClient) -> None:
    job = await summarise.add("bob")
    worker = reports.worker()
    running = asyncio.create_task(worker.run())
    assert await job.result() == Report(customer="bob", orders=3)
    await worker.close()
    await running
