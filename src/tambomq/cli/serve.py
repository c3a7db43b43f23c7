"""``tambo serve``: settings in, a running process out, and where to find it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tambomq import log, settings
from tambomq.cli.output import (
    Command,
    emit_json,
    emit_table,
    forget_reader,
    json_option,
    verbose_option,
)
from tambomq.serve import process
from tambomq.serve.door import Endpoint
from tambomq.serve.ready import report


def setting_options(command: Command) -> Command:
    """Give *command* a flag for every setting; values arrive by their `Spec.name`, unread."""
    for spec in reversed(list(settings.specs())):
        shown = spec.form.toml(spec.default).strip('"') if spec.default is not None else "none"
        command = click.option(
            spec.flag,
            spec.name,
            metavar=spec.form.metavar,
            help=f"{spec.about} [{shown}]",
        )(command)
    return command


@click.command()
@setting_options
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=f"Read settings from here [./{settings.CONFIG_FILE}, if there is one]",
)
@click.option(
    "--ready-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write where everything is, as JSON, once it is ready; removed at the end.",
)
@json_option
@verbose_option
def serve(
    config: Path | None, ready_file: Path | None, *, as_json: bool, **flags: str | None
) -> None:
    """Start everything on this machine and stay until Ctrl-C.

    Without --redis-url the data lives in an embedded server, in the data directory.
    """
    told = settings.load(config, flags=flags)
    log.set_up(told.log.level, told.log.format)

    def on_ready(endpoints: Sequence[Endpoint]) -> None:
        announce(endpoints, as_json=as_json)

    process.run(told, on_ready=on_ready, ready_path=ready_file)


def announce(endpoints: Sequence[Endpoint], *, as_json: bool) -> None:
    """Print where everything is; that nobody reads it is no reason to stop serving."""
    try:
        if as_json:
            emit_json(report(endpoints))
        else:
            rows = [(f"{e.name} ({e.about})", e.address, e.try_it) for e in endpoints]
            emit_table(("what", "where", "try it with"), rows)
    except BrokenPipeError:
        forget_reader()
