"""Membership of a worker in its queue's consumer group.

The group is created when a worker starts, and again if it was deleted since.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.add import CONSUMER_PREFIX
from tambomq.chasqui.ops.group_position import last_delivered
from tambomq.chasqui.ops.worker import ConsumerContext
from tambomq.errors import StoreError, StoreFull, StoreUnavailable, TamboError
from tambomq.log import with_fields
from tambomq.store.aio import AsyncStore
from tambomq.store.features import features

log = logging.getLogger(__name__)

RETRY_S = 0.5
# One attempt lasts up to the store's patience, which may be minutes: log sooner that it waits.
NOTICE_AFTER_S = 1.0


async def join_group(
    store: AsyncStore, context: ConsumerContext, is_closed: Callable[[], bool]
) -> None:
    """Detect the server's features and join the group; retry until that succeeds.

    Once *is_closed*, the error of the last attempt is raised.
    """
    notice = asyncio.get_running_loop().call_later(
        NOTICE_AFTER_S,
        with_fields(log, **context.log_fields).warning,
        "cannot join queue %r yet: no answer from %s; still trying",
        *(context.keys.queue, store.endpoint),
    )
    try:
        await _join(store, context, is_closed)
    finally:
        notice.cancel()


async def _join(store: AsyncStore, context: ConsumerContext, is_closed: Callable[[], bool]) -> None:
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

    Default consumer ids begin with a prefix that tells our workers from those of other ChasquiMQ
    implementations. An id that the user chose has no prefix, so it is registered.
    """
    is_named = not context.consumer.startswith(CONSUMER_PREFIX)
    try:
        if is_named:
            await store.run(worker_ops.register_consumer(context))
        await store.run(worker_ops.create_group(context))
    except StoreFull:
        # A worker frees memory, so it must be able to start.
        await store.run(worker_ops.join_when_full(context, is_named=is_named))
    except StoreError as error:
        if error.kind != "BUSYGROUP":
            raise


class RewindCheck:
    """Checks after each reconnect that the server knows the deliveries in flight; warns if not.

    After a failover it may not: a replica was promoted that lacks the latest deliveries. Then the
    group delivers these entries once more, to any worker.
    """

    def __init__(
        self, store: AsyncStore, context: ConsumerContext, in_flight: Collection[str]
    ) -> None:
        """Check the entries *in_flight*, which change meanwhile."""
        self._store, self._context, self._in_flight = store, context, in_flight
        self._checked = 0
        """`connections_opened` at the last check."""

    async def check(self) -> None:
        """Warn if there is a new connection, and entries here are ahead of the group's position."""
        opened = self._store.connections_opened
        if self._in_flight and 0 < self._checked < opened:
            (last,) = await self._store.outcomes((last_delivered(self._context),))
            if isinstance(last, StoreUnavailable):
                return
            if last is None or (isinstance(last, StoreError) and last.kind == "NOKEY"):
                last = "0-0"
            # Any other error, such as an ACL that forbids the call, says nothing: no warning.
            if isinstance(last, str):
                self._warn([e for e in self._in_flight if _numbers(e) > _numbers(last)])
        self._checked = opened

    def _warn(self, ahead: list[str]) -> None:
        if not ahead:
            return
        with_fields(log, **self._context.log_fields).warning(
            "the server of queue %r does not know of %d deliveries to this worker, probably after "
            "a failover; a job that is not settled before it is delivered again may run twice",
            *(self._context.keys.queue, len(ahead)),
            extra={"count": len(ahead), "entry": ahead[0]},
        )


def _numbers(entry: str) -> tuple[int, ...]:
    return tuple(int(number) if number.isdecimal() else 0 for number in entry.split("-"))
