"""The loop of ``tambo gomq observe``: fetches records and prints them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from tambomq.cli.brokers.client import emit_raw, one_line
from tambomq.cli.output import emit, emit_json, explain
from tambomq.clock import backoff_delays
from tambomq.errors import BrokerUnavailable

if TYPE_CHECKING:
    from tambomq.gomq.client import GomqClient
    from tambomq.gomq.model import Record

# Interactive: fast enough to look immediate, and ten calls a second are cheap.
LOOK_EVERY_S: Final = 0.1
# Servers have a limit of their own, which is lower.
_MAX_AT_ONCE: Final = 1000

Show = Callable[["Record"], None]


def printer(*, as_json: bool, raw: bool) -> Show:
    """Return what prints a record."""
    if raw:
        return lambda record: emit_raw(record.payload)
    if as_json:
        return lambda record: emit_json(
            {
                "key": record.key,
                "id": record.id,
                "timestamp": record.timestamp,
                "payload": record.payload,
            }
        )
    return lambda record: emit("  ".join(map(one_line, _cells(record))))


def take(client: GomqClient, consumer: str, show: Show, *, count: int | None, wait: bool) -> int:
    """Show waiting messages, up to about *count*, and return how many; with *wait* also new ones.

    Shown messages are acknowledged by the next call, or when the client is closed normally.
    """
    seen = 0
    try:
        while count is None or seen < count:
            limit = None if count is None else min(count - seen, _MAX_AT_ONCE)
            found = client.observe(consumer, limit=limit)
            for record in found:
                show(record)
            seen += len(found)
            if not found:
                if not wait:
                    break
                time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        if not wait:
            raise
    return seen


def follow(client: GomqClient, consumer: str, show: Show) -> int:
    """Show what waits and what comes until Ctrl-C; return how many, at least 1 if that ended it.

    Ends by itself when the consumer has no subscription left. A server that goes away is waited
    for, one that was not there at all is an error.
    """
    seen = take(client, consumer, show, count=None, wait=False)
    ended, away, waits = False, False, backoff_delays(LOOK_EVERY_S)
    try:
        while True:
            before = seen
            try:
                for record in client.watch(consumer):
                    show(record)
                    seen += 1
            except BrokerUnavailable as error:
                if not away or seen > before:
                    click.echo(f"{explain(error)}; still trying", err=True)
                away, ended = True, False
                time.sleep(next(waits))
            else:
                # A server that stops ends it, too: only what ends at once again is over.
                if ended and seen == before:
                    return seen
                ended = True
    except KeyboardInterrupt:
        return max(seen, 1)


def _cells(record: Record) -> tuple[str | bytes, ...]:
    # Elements that were not published by GOMQ have no id and no time.
    return record.key, record.id or "-", record.timestamp or "-", record.payload
