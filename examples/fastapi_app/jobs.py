"""The jobs of the application: ``tambo work jobs`` runs them, in this directory."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from tambomq.jobs import Context, Jobs

reports = Jobs("fastapi-reports")  # the server is that of the settings: TAMBO_REDIS_URL


class Report(BaseModel):
    """What a report says; the endpoint and the job use the same model."""

    customer: str
    orders: int


@reports.job(attempts=3, timeout_s=30)
async def summarise(ctx: Context, customer: str, days: int = 30) -> Report:
    """Count the orders of a customer, and say how far it is."""
    await ctx.progress(50)
    await asyncio.sleep(0)  # ask a database here
    return Report(customer=customer, orders=days // 10)
