"""The server options of ``tambo pipeline``, and helpers that all its commands share."""

from __future__ import annotations

from typing import Final

import click

from tambomq.cli.chasqui.client import confirm
from tambomq.cli.output import Command, json_option, verbose_option
from tambomq.store.endpoint import URL
from tambomq.store.sync import Store

__all__ = ["confirm", "counted", "every_command", "journal_option", "open_store", "redis_url"]

ENV: Final = ("TAMBO_REDIS_URL", "REDIS_URL")
# Interactive: long enough for a server that restarts, short enough for a user who waits.
PATIENCE_S: Final = 5.0
_URL: Final = "tambomq.pipeline.redis_url"


journal_option: Final = click.option(
    "--journal", is_flag=True, help="Record what the queue gets, in its journal."
)


def every_command(command: Command) -> Command:
    """Add the options that all commands have: ``--json``, ``--redis-url``, ``--verbose``."""
    url = click.option(
        "--redis-url",
        metavar="URL",
        envvar=ENV,
        show_envvar=True,
        expose_value=False,
        callback=_remember,
        help=f"The server. [{URL}]",
    )
    for option in (verbose_option, url, json_option):
        command = option(command)
    return command


def counted(count: int, one: str, many: str = "") -> str:
    """Return ``1 queue`` or ``2 queues``; *many* is the plural of what has another."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def redis_url() -> str:
    """Return the server that the command line or the environment names."""
    url: str = click.get_current_context().meta.get(_URL, URL)
    return url


def open_store() -> Store:
    """Return the server; it is closed when the command ends. The first call connects."""
    store = Store(redis_url(), patience_s=PATIENCE_S)
    click.get_current_context().call_on_close(store.close)
    return store


def _remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:  # noqa: ARG001  (click's signature)
    if value is not None:
        ctx.meta[_URL] = value
