"""``tambo backup``: writes a backup of a server that runs, or of a data directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click
import msgspec

import tambomq
from tambomq.backup.source import embedded_source, external_source
from tambomq.backup.write import target_path, write_backup
from tambomq.cli.backup.shown import fields, progress_bar, rows
from tambomq.cli.output import (
    NothingThere,
    emit,
    emit_json,
    emit_table,
    example,
    json_option,
    verbose_option,
)
from tambomq.cli.serve import options_for
from tambomq.settings import load as settings

_SHARED: Final = ("redis_url", "data_dir")


def _specs() -> Iterator[settings.Spec]:
    return (spec for spec in settings.specs() if spec.name in _SHARED)


@click.command(
    epilog=example(
        "tambo backup",
        "tambo backup /backups/",
        "tambo backup nightly.rdb --force --data-dir /var/lib/tambo",
        "tambo backup --redis-url redis://10.0.0.5",
    )
)
@click.argument("target", default=".", type=click.Path(), metavar="[FILE|DIR]")
@options_for(_specs())
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=f"Read settings from here [./{settings.CONFIG_FILE}, if there is one]",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option(
    "--verify/--no-verify",
    default=True,
    help="Have a throw-away server load the backup, and count what is in it. [on]",
)
@json_option
@verbose_option
def backup(
    target: str,
    config: Path | None,
    *,
    force: bool,
    verify: bool,
    as_json: bool,
    **flags: object,
) -> None:
    """Back up the data of `tambo serve`, as of one moment, while it goes on.

    The embedded server need not run. Another server, with --redis-url, is copied as a replica of it
    would be. FILE is an RDB file, which every Redis and Valkey of the same format loads; in a
    directory it gets the time as its name.
    """
    if flags["data_dir"] is not None and flags["redis_url"] is not None:
        raise click.UsageError("--data-dir and --redis-url name two servers: give one of them")
    server = settings.load(config, flags=flags).server
    path = target_path(Path(target))
    # A disk that is not mounted must not be replaced by a file of its name.
    if target.endswith(os.sep) and path == Path(target):
        raise NothingThere(f"there is no directory {target}: is its disk mounted?")
    with ExitStack() as stack:
        # A directory that is named wins over a server of the environment or the file.
        if server.redis_url and flags["data_dir"] is None:
            source = external_source(server.redis_url)
        else:
            source = stack.enter_context(embedded_source(server.data_dir))
        progress = stack.enter_context(progress_bar("copying", shown=not as_json))
        done = write_backup(
            source, path, version=tambomq.__version__, force=force, verify=verify, progress=progress
        )
    if as_json:
        found = fields(done.manifest, done.manifest.contents)
        emit_json(msgspec.to_builtins({"path": str(path), "bytes": done.bytes, **found}))
        return
    emit(f"{path}\n")
    emit_table(("backup", ""), rows(done.manifest, done.manifest.contents))
