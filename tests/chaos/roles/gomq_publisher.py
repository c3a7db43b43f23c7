"""Publishes to some GOMQ keys, one after another."""

from __future__ import annotations

from tambomq.gomq import GomqClient
from tests.chaos.role import RoleContext, main

KEYS = ("key-1", "key-2")
"""Each has one consumer: the one of its number."""
_KINDS = {"plain": 100}


def program(context: RoleContext) -> None:
    """Publish until the program is to end."""
    address, lease_s = f"127.0.0.1:{context.target}", context.lease_s
    with GomqClient(address, timeout_s=lease_s, patience_s=lease_s) as client:
        for message in context.messages(kinds=_KINDS):
            key = context.random.choice(KEYS)
            with context.sending(message, key=key):
                client.publish(key, message.text)


if __name__ == "__main__":
    main(program)
