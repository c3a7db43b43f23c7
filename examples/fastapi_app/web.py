"""A FastAPI application that adds jobs and waits for their results.

Start it, with a worker beside it, in this directory::

    uvicorn web:app --port 8001
    tambo work jobs
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException
from jobs import Report, reports, summarise

from tambomq.errors import JobFailed, QueueFull, StoreUnavailable


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """Disconnect at the end; the first request connects."""
    yield
    await reports.close()


app = FastAPI(lifespan=lifespan)


@app.post("/reports/{customer}", status_code=202)
async def order_report(customer: str, days: int = 30) -> dict[str, str]:
    """Add a job and answer at once, with its id."""
    try:
        job = await summarise.add(customer, days=days)
    except (QueueFull, StoreUnavailable) as error:
        raise HTTPException(503, "try again in a minute") from error
    return {"job": job.id}


@app.get("/reports/{job_id}")
async def report(job_id: str) -> Report:
    """Wait for the result of a job, for at most ten seconds."""
    try:
        return await summarise.handle(job_id).result(timeout_s=10)
    except TimeoutError as error:
        raise HTTPException(504, "not ready yet") from error
    except JobFailed as error:
        raise HTTPException(500, error.reason) from error


@app.get("/reports/{job_id}/progress")
async def progress(job_id: str) -> Any:
    """Return how far a job is; null if it has not said, or has ended."""
    return await summarise.handle(job_id).progress()
