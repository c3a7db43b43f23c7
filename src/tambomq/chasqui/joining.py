"""How a worker joins the group of its queue, at first and when somebody has deleted it."""

from __future__ import annotations

from tambomq.chasqui import worker_ops
from tambomq.chasqui.ops import OURS
from tambomq.chasqui.worker_ops import Seat
from tambomq.errors import StoreError
from tambomq.store.aio import AsyncStore


async def make_group(store: AsyncStore, seat: Seat) -> None:
    """Let the group be there."""
    if not seat.consumer.startswith(OURS):
        await store.run(worker_ops.enlist(seat))
    try:
        await store.run(worker_ops.make_group(seat))
    except StoreError as error:
        if not str(error).startswith("BUSYGROUP"):
            raise
