"""Sends KqueueMsgQ messages to some queues, one after another."""

from __future__ import annotations

from tambomq.kqueue import Producer
from tests.chaos.role import RoleContext, main

QUEUES = ("queue-1", "queue-2")
_KINDS = {"plain": 100}


def program(context: RoleContext) -> None:
    """Send until the program is to end."""
    with Producer(port=context.target, timeout_s=context.lease_s) as producer:
        for message in context.messages(kinds=_KINDS):
            queue = context.random.choice(QUEUES)
            with context.sending(message, key=queue):
                producer.send(queue, message.text)


if __name__ == "__main__":
    main(program)
