"""The server, namespace and queue options that ``rsmqctl`` and ``tambo rsmq`` share.

Both open their client here; it is closed when the command ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import click

from tambomq.cli.output import Command
from tambomq.journal import ops
from tambomq.journal.ops import State
from tambomq.rsmq.client import Rsmq
from tambomq.rsmq.keys import NAMESPACE
from tambomq.rsmq.ops.journal import journal_keys
from tambomq.store.call import Call
from tambomq.store.durability.level import MEMORY
from tambomq.store.endpoint import URL
from tambomq.store.sync import Store

# Interactive: long enough for a server that restarts, short enough for a user who waits.
PATIENCE_S: Final = 1.0
_META_PREFIX: Final = "tambomq.rsmq."


def url_option(*flags: str, env: Sequence[str] = ()) -> Callable[[Command], Command]:
    """Return a decorator that adds the server option to a command or its group."""
    return click.option(
        *flags,
        "redis_url",
        metavar="URL",
        envvar=env,
        show_envvar=bool(env),
        expose_value=False,
        callback=_remember,
        help=f"The server. [{URL}]",
    )


def ns_option(command: Command) -> Command:
    """Give *command*, or its group, ``--ns``."""
    return click.option(
        "--ns",
        metavar="NAME",
        expose_value=False,
        callback=_remember,
        help=f"The namespace of the queues. [{NAMESPACE}]",
    )(command)


def name_option(command: Command) -> Command:
    """Give *command* ``-n``, the name of its queue."""
    return click.option("-n", "--name", required=True, metavar="QUEUE", help="The queue.")(command)


def open_client(
    *, realtime: bool = False, journal: Sequence[str] = (), durable: str | None = None
) -> Rsmq:
    """Return a client for what the command line says; the first operation connects."""
    ctx, level = click.get_current_context(), MEMORY if durable is None else durable
    client = Rsmq(open_store(), ns=_namespace(), realtime=realtime, journal=journal, durable=level)
    return ctx.with_resource(client)


def look_at_journal(queue: str) -> State | None:
    """Return what the journal of *queue* holds; `None` if it has none."""
    return open_store().run(ops.state(journal_keys(_namespace(), queue)))


def open_store() -> Store:
    """Return the store for the server of the command line: one for each command."""
    meta = click.get_current_context().meta
    if (store := meta.get(f"{_META_PREFIX}store")) is None:
        store = Store(meta.get(f"{_META_PREFIX}redis_url", URL), patience_s=PATIENCE_S)
        meta[f"{_META_PREFIX}store"] = store
    found: Store = store
    return found


def server_time_ms() -> int:
    """Return the server's time, which decides what is visible."""
    return open_store().run(Call("TIME", (), (), _milliseconds, repeatable=True))


def _namespace() -> str:
    found: str = click.get_current_context().meta.get(f"{_META_PREFIX}ns", NAMESPACE)
    return found


def _milliseconds(time: Sequence[bytes]) -> int:
    return int(time[0]) * 1000 + int(time[1]) // 1000


def _remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    # Groups come before their commands, so the option closer to the command wins.
    if value:
        ctx.meta[f"{_META_PREFIX}{param.name}"] = value
