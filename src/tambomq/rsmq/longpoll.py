"""Receives that wait: asleep until a notice comes, a message becomes visible, or time is up.

Who goes deaf listens anew before receiving: the connection for calls has most
likely ended with the one for notices, and a receive sent into it would be lost.
"""

from __future__ import annotations

from tambomq.clock import Deadline
from tambomq.rsmq import ops
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.model import Message, check_seconds
from tambomq.store.sync import Store

# A sender without realtime gives no notice. Looking twice a second finds its
# message soon; the looks of 1,000 waiting clients take the server 6 % of a core.
LOOK_EVERY_S = 0.5


def nap_s(haul: ops.Haul, left_s: float) -> float:
    """Return how long to sleep after an empty *haul* with *left_s* seconds left."""
    due_s = LOOK_EVERY_S if haul.next_in_ms is None else haul.next_in_ms / 1000
    return min(due_s, LOOK_EVERY_S, left_s)


def receive(
    store: Store, keys: Keys, queue: str, count: int, *, vt: float | None, wait: float
) -> list[Message]:
    """Return the oldest visible messages, waiting up to *wait* seconds for the first."""
    deadline = Deadline(check_seconds("wait", wait))
    haul = store.follow(ops.receive_batch(keys, queue, count, vt=vt))
    while not (haul.messages or deadline.passed):
        with store.listen(keys.notices(queue)) as notices:
            haul = store.follow(ops.receive_batch(keys, queue, count, vt=vt))
            while notices.sound and not (haul.messages or deadline.passed):
                notices.wait(nap_s(haul, deadline.left_s))
                if notices.sound:
                    haul = store.follow(ops.receive_batch(keys, queue, count, vt=vt))
    return haul.messages
