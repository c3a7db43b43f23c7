"""``tambo restore``: makes a backup the data of a data directory."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from tambomq.backup.restore import RestoreResult, check_backup, restore_backup
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


@click.command(
    epilog=example(
        "tambo restore nightly.rdb --check",
        "tambo restore nightly.rdb --data-dir /var/lib/tambo",
    )
)
@click.argument("file", type=click.Path(path_type=Path))
@options_for(spec for spec in settings.specs() if spec.name == "data_dir")
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=f"Read settings from here [./{settings.CONFIG_FILE}, if there is one]",
)
@click.option("--force", is_flag=True, help="Set the data that is there aside; nothing is deleted.")
@click.option("--check", is_flag=True, help="Only check that FILE can be restored.")
@json_option
@verbose_option
def restore(
    file: Path,
    config: Path | None,
    *,
    force: bool,
    check: bool,
    as_json: bool,
    **flags: object,
) -> None:
    """Make a backup the data of `tambo serve`, which must not run meanwhile.

    FILE is what `tambo backup` wrote, or another RDB file. It is verified first; until then, and if
    anything fails, the data stays as it is. Passwords and users of the data directory are kept.
    """
    if not file.exists():
        raise NothingThere(f"there is no {file}")
    data_dir = settings.load(config, flags=flags).server.data_dir
    with progress_bar("checking" if check else "restoring", shown=not as_json) as progress:
        if check:
            done = check_backup(file, progress)
        else:
            done = restore_backup(file, data_dir, force=force, progress=progress)
    if as_json:
        emit_json(msgspec.to_builtins(_fields(done, None if check else data_dir)))
        return
    emit(f"{file} can be restored\n" if check else f"{data_dir} has the data of {file}\n")
    emit_table(("backup", ""), [*rows(done.manifest, done.contents), *_aside(done)])


def _fields(done: RestoreResult, data_dir: Path | None) -> dict[str, object]:
    return {
        "data_dir": str(data_dir) if data_dir else None,
        "set_aside": str(done.aside) if done.aside else None,
        **fields(done.manifest, done.contents),
    }


def _aside(done: RestoreResult) -> list[tuple[str, str]]:
    return [("old data", str(done.aside))] if done.aside else []
