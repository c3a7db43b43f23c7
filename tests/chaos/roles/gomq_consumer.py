"""Observes one GOMQ key, and acknowledges what it has handled."""

from __future__ import annotations

import asyncio

from tambomq.errors import BrokerError
from tambomq.gomq import AsyncGomqClient
from tests.chaos.role import RoleContext, main
from tests.chaos.roles.gomq_publisher import KEYS

_LIMIT = 10
_PAUSE_S = 0.05
_SUBSCRIBE_EVERY = 20


async def consume(context: RoleContext) -> None:
    """Handle the records of the key of this program's number until it is to end."""
    name, lease_s = f"consumer-{context.number}", context.lease_s
    client = AsyncGomqClient(
        f"127.0.0.1:{context.target}", peer=name, timeout_s=lease_s, patience_s=lease_s
    )
    idle = 0
    async with client:
        while not context.stopping.is_set():
            try:
                # Again now and then: a server that has lost its data has lost that too.
                if idle % _SUBSCRIBE_EVERY == 0:
                    await client.subscribe(KEYS[context.number - 1], name)
                records = await client.observe(name, limit=_LIMIT)
            except BrokerError:
                records = []
            for record in records:
                await context.handle(record.text, 1)
            idle = 1 if records else idle + 1
            if not records:
                await asyncio.sleep(_PAUSE_S)


def program(context: RoleContext) -> None:
    """Handle records until the program is to end."""
    asyncio.run(consume(context))


if __name__ == "__main__":
    main(program)
