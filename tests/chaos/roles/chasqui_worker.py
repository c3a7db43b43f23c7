"""Runs a ChasquiMQ `Worker` until SIGTERM."""

from __future__ import annotations

from tambomq.chasqui import BackoffSpec, Job, Worker
from tests.chaos.role import RoleContext, main
from tests.chaos.roles.chasqui_sender import QUEUE


def program(context: RoleContext) -> None:
    """Run jobs until the program is to end."""

    async def handler(job: Job) -> None:
        await context.handle(job.data, job.attempt)

    Worker(
        QUEUE,
        handler,
        redis_url=context.url,
        concurrency=10,
        max_attempts=context.options["budget"],
        claim_min_idle_ms=round(context.lease_s * 1000),
        heartbeat=context.options.get("heartbeat", "thread"),
        backoff=BackoffSpec.fixed(100),
        grace_s=context.lease_s * 3,
        patience_s=context.lease_s,
    ).run_forever()


if __name__ == "__main__":
    main(program)
