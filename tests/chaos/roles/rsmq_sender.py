"""Sends RSMQ messages: one after another, or several at a time if its number is even.

``options["batch"]``: how many at a time, whatever the number.
"""

from __future__ import annotations

import itertools

from tambomq.rsmq import Rsmq
from tests.chaos.role import RoleContext, main

QUEUE = "q"
BATCH = 5


def program(context: RoleContext) -> None:
    """Send until the program is to end; ``options["journal"]``: the queues that have one."""
    journal = context.options.get("journal", ())
    with Rsmq(context.url, patience_s=context.lease_s, journal=journal) as rsmq:
        messages = context.messages()
        size = context.options.get("batch", BATCH if context.number % 2 == 0 else 1)
        if size == 1:
            for message in messages:
                with context.sending(message):
                    rsmq.send_message(QUEUE, message.text, delay=message.delay_s or None)
            return
        while batch := list(itertools.islice(messages, size)):
            now = [message for message in batch if not message.delay_s]
            with context.sending(*now):
                rsmq.send_messages(QUEUE, [message.text for message in now])


if __name__ == "__main__":
    main(program)
