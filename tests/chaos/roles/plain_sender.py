"""Sends by plain Redis: LPUSH to a list, or PUBLISH to a channel (``options["publish"]``)."""

from __future__ import annotations

import redis

from tests.chaos.role import Outgoing, RoleContext, main

NAME = "q"
KINDS = {"plain": 95, "slow": 5}
"""A worker without retries may fail no message, and nothing here runs later."""


def program(context: RoleContext) -> None:
    """Send until the program is to end."""
    with redis.Redis.from_url(context.url, retry=None) as db:
        for message in context.messages(kinds=KINDS):
            _send(context, db, message)


def _send(context: RoleContext, db: redis.Redis, message: Outgoing) -> None:
    operation, outcome = context.recorder.begin("send", message.text), "ok"
    try:
        if not context.options.get("publish"):
            db.lpush(NAME, message.text)
        elif not db.publish(NAME, message.text):
            outcome = "fail"  # Nobody has it, and the sender knows.
    except redis.RedisError:
        outcome = "unknown"
    context.recorder.end("send", outcome, message.text, operation)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(program)
