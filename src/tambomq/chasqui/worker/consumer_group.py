"""Membership of a worker in its queue's consumer group.

The group is created when a worker starts, and again whenever somebody has deleted it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.add import CONSUMER_PREFIX
from tambomq.chasqui.ops.worker import ConsumerContext
from tambomq.errors import StoreError, TamboError
from tambomq.log import with_fields
from tambomq.store.aio import AsyncStore
from tambomq.store.features import features

log = logging.getLogger(__name__)

RETRY_S = 0.5


async def join_group(
    store: AsyncStore, context: ConsumerContext, is_closed: Callable[[], bool]
) -> None:
    """Learn what the server can do, and join the group; try until it works.

    Raises the error of the last attempt if *is_closed* meanwhile.
    """
    while True:
        try:
            context.features = await store.follow(features())
            if not is_closed():
                await ensure_group(store, context)
            return
        except TamboError as error:
            queue = context.keys.queue
            with_fields(log, **context.log_fields).warning(
                "cannot join queue %r yet: %s", queue, error
            )
            if is_closed():
                raise
            await asyncio.sleep(RETRY_S)


async def ensure_group(store: AsyncStore, context: ConsumerContext) -> None:
    """Create the consumer group unless it exists.

    A consumer id chosen by the user is registered, so that we can tell our workers from foreign
    ones: by default ours begin with a prefix.
    """
    if not context.consumer.startswith(CONSUMER_PREFIX):
        await store.run(worker_ops.register_consumer(context))
    try:
        await store.run(worker_ops.create_group(context))
    except StoreError as error:
        if error.kind != "BUSYGROUP":
            raise
