"""Long polling: a receive that waits for a realtime notification, a due message or its deadline.

If the pub/sub connection drops, it resubscribes before the next receive: the command
connection has most likely dropped too, and messages received through it would be lost.
"""

from __future__ import annotations

from functools import partial

from tambomq.clock import Deadline
from tambomq.journal.policy import JournalPolicy
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.model import Message, check_seconds
from tambomq.rsmq.ops import messages as message_ops
from tambomq.store.sync import Store

# Senders without realtime publish no notification. Polling twice a second finds their
# messages soon; 1,000 waiting clients that poll take the server 6 % of a core.
POLL_EVERY_S = 0.5


def poll_delay_s(result: message_ops.ReceiveResult, left_s: float) -> float:
    """Return how long to sleep after an empty *result*, at most *left_s*; in seconds."""
    due_s = POLL_EVERY_S if result.next_in_ms is None else result.next_in_ms / 1000
    return min(due_s, POLL_EVERY_S, left_s)


def receive(
    store: Store,
    keys: Keys,
    queue: str,
    count: int,
    *,
    vt: float | None,
    wait: float,
    journal: JournalPolicy | None,
) -> list[Message]:
    """Return the oldest visible messages, waiting up to *wait* seconds for the first."""
    deadline = Deadline(check_seconds("wait", wait))
    plan = partial(message_ops.receive_batch, keys, queue, count, vt=vt, journal=journal)
    result = store.follow(plan())
    while not (result.messages or deadline.passed):
        with store.listen(keys.realtime_channel(queue)) as subscription:
            result = store.follow(plan())
            while subscription.is_usable and not (result.messages or deadline.passed):
                subscription.wait(poll_delay_s(result, deadline.left_s))
                if subscription.is_usable:
                    result = store.follow(plan())
    return result.messages
