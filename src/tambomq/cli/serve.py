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
from tambomq.forms import Flag, Names
from tambomq.serve import process
from tambomq.serve.door import Endpoint
from tambomq.serve.ready import report


class GroupedCommand(click.Command):
    """A command whose help lists its options section by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what concerns the command itself, then a part for each section of settings."""
        sections = {spec.name: spec.section for spec in settings.specs()}
        parts: dict[str, list[tuple[str, str]]] = {"": []}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                parts.setdefault(sections.get(str(param.name), ""), []).append(record)
        for section, records in parts.items():
            with formatter.section(f"[{section}]" if section else "Options"):
                formatter.write_dl(records)


def setting_options(command: Command) -> Command:
    """Give *command* a flag for every setting; values arrive by their `Spec.name`, unread."""
    for spec in reversed(list(settings.specs())):
        is_switch = isinstance(spec.form, Flag)
        command = click.option(
            *spec.spellings,
            spec.name,
            default=None,
            multiple=isinstance(spec.form, Names),
            metavar=None if is_switch else spec.form.metavar,
            help=f"{spec.about} [{_default(spec)}]",
        )(command)
    return command


def _default(spec: settings.Spec) -> str:
    if spec.default in (None, ()):
        return "none"
    if isinstance(spec.form, Flag):
        return "on" if spec.default else "off"
    return spec.form.toml(spec.default).strip('"')


@click.command(cls=GroupedCommand)
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
def serve(config: Path | None, ready_file: Path | None, *, as_json: bool, **flags: object) -> None:
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
