"""Options of commands of all protocols: ``--redis-url``, ``--ns`` and ``--durable``."""

from __future__ import annotations

from typing import Final

import click

from tambomq.cli.output import Command
from tambomq.errors import LocalProtocolError
from tambomq.store.durability.level import durability
from tambomq.store.endpoint import URL

ENV: Final = ("TAMBO_REDIS_URL", "REDIS_URL")


def redis_url_option(command: Command) -> Command:
    """Give *command* ``--redis-url``, which arrives as ``redis_url``."""
    return click.option(
        "--redis-url",
        metavar="URL",
        envvar=ENV,
        default=URL,
        help=f"The server. [$TAMBO_REDIS_URL, $REDIS_URL, {URL}]",
    )(command)


def durable_option(command: Command) -> Command:
    """Give *command* ``--durable``: the level of what it sends; `None` for the default."""
    return click.option(
        "--durable",
        metavar="LEVEL",
        envvar="TAMBO_DURABLE",
        show_envvar=True,
        callback=_level,
        help="Done when it is in memory, on disk, or on replicas:N.",
    )(command)


def _level(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        durability(value)
    except LocalProtocolError as error:
        raise click.BadParameter(str(error)) from error
    return value


def ns_option(command: Command) -> Command:
    """Give *command* ``--ns``, RSMQ's namespace."""
    # Here, since commands of ChasquiMQ start without it.
    from tambomq.rsmq.keys import NAMESPACE

    return click.option(
        "--ns", default=NAMESPACE, metavar="NAME", help=f"RSMQ's namespace. [{NAMESPACE}]"
    )(command)
