"""Where the users are that a command shows or changes: in a file, or in Redis."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tambomq.cli.output import Command
from tambomq.cli.redis_option import ENV
from tambomq.errors import SettingsError

if TYPE_CHECKING:
    from tambomq.access.edits import UserStore


def target_options(command: Command) -> Command:
    """Give *command* ``--file`` and ``--redis-url``, for `open_users`."""
    command = click.option(
        "--redis-url",
        metavar="URL",
        help=f"The users are in this server. [that of the settings; ${', $'.join(ENV)}]",
    )(command)
    return click.option(
        "--file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The users are in this file. [`file` in [access]]",
    )(command)


def open_users(file: Path | None, redis_url: str | None) -> UserStore:
    """Return the users that the options name, else those of the settings."""
    if file is not None and redis_url is not None:
        raise click.UsageError("the users are in a file or in Redis: give --file or --redis-url")
    if redis_url is None and file is None:
        from tambomq.settings import load as settings

        loaded = settings.load()
        file = loaded.access.file
        if file is None and loaded.access.redis:
            from tambomq.store.endpoint import URL

            redis_url = loaded.server.redis_url or URL
    if file is not None:
        from tambomq.access.file import UserFile

        return UserFile(file.expanduser().absolute())
    if redis_url is None:
        raise SettingsError(
            "no users are configured: name their file with --file (or `file` in [access] of "
            "tambo.toml, or $TAMBO_ACCESS_FILE), or their Redis with --redis-url"
        )
    return _in_redis(redis_url)


def _in_redis(url: str) -> UserStore:
    from tambomq.access.edits import RedisUsers
    from tambomq.store.sync import Store

    store = Store(url, patience_s=0)
    click.get_current_context().call_on_close(store.close)
    return RedisUsers(store)
