"""A tour of RSMQ: send, receive, hide, delete, look.

Start a server with `make run`, then run this file. REDIS_URL names another server.
"""

from __future__ import annotations

import os

from tambomq.errors import QueueExists
from tambomq.rsmq import Rsmq

QUEUE = "example-tour"


def main(url: str) -> None:
    with Rsmq(url) as rsmq:
        try:
            rsmq.create_queue(QUEUE, vt=30)
        except QueueExists:
            rsmq.purge_queue(QUEUE)

        rsmq.send_message(QUEUE, "one")

        # A received message is hidden from everybody for the queue's vt.
        [first] = rsmq.receive_messages(QUEUE, 1)
        print("received", first.text, "for the first time:", first.rc == 1)

        # It comes back unless it is deleted. Here it comes back at once.
        rsmq.change_message_visibility(QUEUE, first.id, 0)
        [again] = rsmq.receive_messages(QUEUE, 1)
        print("received", again.text, "again:", again.rc, "times in all")

        # The first receipt is void now: its holder cannot delete what another one holds.
        print("the stale one deletes:", rsmq.delete_message(QUEUE, first.id, receipt=first.receipt))
        print("the holder deletes:", rsmq.delete_message(QUEUE, again.id, receipt=again.receipt))

        # Several at once, received in the order they were sent.
        rsmq.send_messages(QUEUE, ["two", b"\x03 as bytes"])
        rsmq.send_message(QUEUE, "later", delay=60)
        rest = rsmq.receive_messages(QUEUE, 10)
        print("received", [message.body for message in rest])
        rsmq.delete_messages(QUEUE, rest)

        # Looking consumes nothing; what is delayed is seen too.
        print("left", [message.text for message in rsmq.peek_messages(QUEUE)])
        stats = rsmq.get_queue_stats(QUEUE)
        print("visible", stats.visible, "in flight", stats.in_flight, "delayed", stats.delayed)

        rsmq.delete_queue(QUEUE)
        print("done")


if __name__ == "__main__":
    main(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
