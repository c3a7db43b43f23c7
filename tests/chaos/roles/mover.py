"""Moves RSMQ messages from the senders' queue to another, again and again, until SIGTERM."""

from __future__ import annotations

import logging

from tambomq.errors import TamboError
from tambomq.pipeline.address import Address
from tambomq.pipeline.transfer.migrate import QueueLocation, endpoint_of, migrate, move_name
from tambomq.store.sync import Store
from tests.chaos.role import RoleContext, main
from tests.chaos.roles.rsmq_sender import QUEUE

MOVED = "moved"
_AGAIN_S = 0.05
_log = logging.getLogger(__name__)


def program(context: RoleContext) -> None:
    """Move what there is until the program is to end."""
    # One name, whatever port this process reaches the server by.
    source, target = (QueueLocation(Address("rsmq", q), "redis://server") for q in (QUEUE, MOVED))
    store = Store(context.url, patience_s=context.lease_s)
    while not context.stopping.wait(context.options.get("every_s", _AGAIN_S)):
        ends = endpoint_of(store, source), endpoint_of(store, target)
        try:
            migrate(*ends, move_name(source, target), wait_s=0)
        except TamboError as error:
            _log.warning("cannot move: %s", error)
    store.close()


if __name__ == "__main__":
    main(program)
