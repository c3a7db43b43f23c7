"""Runs an `RsmqWorker` until SIGTERM."""

from __future__ import annotations

from tambomq.rsmq import Message, RsmqWorker
from tambomq.rsmq.worker.backoff import Backoff
from tests.chaos.role import RoleContext, main
from tests.chaos.roles.rsmq_sender import QUEUE


def program(context: RoleContext) -> None:
    """Handle messages until the program is to end."""

    async def handler(message: Message) -> None:
        await context.handle(message.text, message.rc)

    RsmqWorker(
        QUEUE,
        handler,
        url=context.url,
        concurrency=10,
        vt=context.lease_s,
        heartbeat=context.options.get("heartbeat", "thread"),
        max_receives=context.options["budget"],
        backoff=Backoff(0.1, 0.5),
        grace_s=context.lease_s * 3,
        patience_s=context.lease_s,
    ).run_forever()


if __name__ == "__main__":
    main(program)
